#!/bin/bash
# bare.sh BUILD PROGRAM LIBRARY: a program that only trains holds none of what it does not ask for: published policies, drawing,
# glyphs, readers of data sets, ready-made networks, the ONNX writer; and the static library that is shipped holds nothing of
# the libraries beside it, and wants none of the server's. What belongs to each is read from its objects.
set -euo pipefail
build=$1
program=$2
library=$3
failed=0

# names FILE...: what the objects, the program or the library define.
names() {
    nm --defined-only "$@" 2>/dev/null | awk 'NF >= 3 {print $3}' | sort -u
}

# none HOLDER HELD NAME OBJECTS...: HELD, the names in HOLDER, has no name that one of the objects shows to others.
none() {
    local holder=$1 held=$2 name=$3 object both
    shift 3
    [ $# -gt 0 ] || { echo "bare.sh: no objects of $name in $build" >&2; exit 2; }
    for object in "$@"; do
        both=$(comm -12 <(names -g "$object") <(echo "$held"))
        [ -z "$both" ] || { echo "$(basename "$holder"): $name: $(basename "$object" .o): $(echo "$both" | tr '\n' ' ')"; failed=1; }
    done
}

trainer=$build/trainer/CMakeFiles/dunlin_trainer.dir/src
mapfile -t policies < <(find "$build"/*/CMakeFiles/dunlin_*_baselines.dir -name '*.c.o')
mapfile -t drawing < <(find "$build"/*/CMakeFiles/dunlin_*_tools.dir -name 'draw*.c.o')
mapfile -t glyphs < <(find "$build"/*/CMakeFiles/dunlin_*_tools.dir -path '*/synthetic/*.c.o')
mapfile -t data < <(find "$trainer/data" -name '*.c.o' ! -path '*/files/*')
held=$(names "$program")
none "$program" "$held" "published policies" "${policies[@]}"
none "$program" "$held" "drawing" "${drawing[@]}"
none "$program" "$held" "glyphs" "${glyphs[@]}"
none "$program" "$held" "data sets" "${data[@]}"
none "$program" "$held" "ready-made networks" "$trainer"/model/zoo/*.o
none "$program" "$held" "ONNX writer" "$trainer"/convert/write/*.o

held=$(names "$library")
[ -n "$held" ] || { echo "bare.sh: no names in $library" >&2; exit 2; }
none "$library" "$held" "published policies" "${policies[@]}"
none "$library" "$held" "drawing" "${drawing[@]}"
none "$library" "$held" "glyphs" "${glyphs[@]}"
for object in "$build"/proto/CMakeFiles/dunlin_gnutls_objects.dir/gnutls/provider_*.o; do
    [ ! -e "$object" ] || none "$library" "$held" "the server's crypto library" "$object"
done
wanted=$(nm --undefined-only "$library" 2>/dev/null | awk 'NF == 2 {print $2}' | grep -E '^(gnutls|nettle|MHD|json)_|^__gmp' | sort -u || true)
[ -z "$wanted" ] || { echo "$(basename "$library"): wants of the server's libraries: $(echo "$wanted" | tr '\n' ' ')"; failed=1; }
[ $failed = 0 ] && echo "none of what it does not ask for; $(stat -c %s "$program") bytes"
exit $failed
