#!/bin/bash
# package.sh BUILD PREFIX: install, move the prefix (it must be relocatable), then use the library from outside.
set -euo pipefail
build=$1
prefix=$2
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$prefix" "$prefix-moved" "$prefix-work"
cmake --install "$build" --prefix "$prefix" >/dev/null
mv "$prefix" "$prefix-moved"
mkdir -p "$prefix-work"

cmake -S "$here/foreign" -B "$prefix-work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix-moved" >/dev/null
cmake --build "$prefix-work/cmake" >/dev/null
"$prefix-work/cmake/foreign"
"$prefix-work/cmake/policies"
"$prefix-work/cmake/tools"

pc=$(dirname "$(find "$prefix-moved" -name dunlin.pc)")
# shellcheck disable=SC2046
cc -std=c11 "$here/foreign/foreign.c" $(PKG_CONFIG_PATH="$pc" pkg-config --cflags --libs dunlin) -o "$prefix-work/foreign"
LD_LIBRARY_PATH=$(dirname "$pc") "$prefix-work/foreign"
# Beside it: a program of each, and its library.
for beside in policies:baselines tools:tools; do
    program=${beside%:*}
    # shellcheck disable=SC2046
    cc -std=c11 "$here/foreign/$program.c" $(PKG_CONFIG_PATH="$pc" pkg-config --cflags --libs "dunlin-${beside#*:}") -o "$prefix-work/$program"
    LD_LIBRARY_PATH=$(dirname "$pc") "$prefix-work/$program"
done

# The program of the README, as it stands there.
awk '/^```c$/ {on = 1; next} /^```$/ {if (on) exit} on' "$here/../../README.md" >"$prefix-work/readme.c"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror "$prefix-work/readme.c" \
    $(PKG_CONFIG_PATH="$pc" pkg-config --cflags --libs dunlin) -o "$prefix-work/readme"
LD_LIBRARY_PATH=$(dirname "$pc") "$prefix-work/readme" | tee "$prefix-work/readme.out"
grep -q accuracy "$prefix-work/readme.out"
# With the static library the linker takes what is asked for.
if [ -e "$(dirname "$pc")/libdunlin.a" ]; then
    "$here/bare.sh" "$build" "$prefix-work/readme" "$(dirname "$pc")/libdunlin.a"
elif ! compgen -G "$(dirname "$pc")/libdunlin.so*" >/dev/null && ! compgen -G "$(dirname "$pc")/libdunlin.*dylib" >/dev/null; then
    echo "package.sh: neither a static nor a shared library in $(dirname "$pc")" >&2
    exit 1
fi
