#!/bin/bash
# clang-tidy over every source of the libraries, the server and the programs: tidy.sh BUILD-FOLDER [--every-set] [FILE...]
# Kernels are looked at as they are compiled for the first of the instruction sets; --every-set: for each of them.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
shift
[ -f "$build/compile_commands.json" ] || {
    echo "tidy.sh: $build has no compile_commands.json; configure it first" >&2
    exit 2
}
# Each version finds other things; one decides.
version=14
tidy=$(command -v "clang-tidy-$version" || command -v clang-tidy || true)
if ! "$tidy" --version | grep -q "version $version\."; then
    echo "tidy: skipped, clang-tidy $version decides, and this is" \
        "$("$tidy" --version | sed -n 's/.*\(version [0-9.]*\).*/\1/p' | head -n 1)"
    exit 0
fi
if [ "${1:-}" = --every-set ]; then
    shift
else
    mkdir -p "$build/tidy"
    python3 - "$build/compile_commands.json" "$build/tidy/compile_commands.json" <<'END'
import json, sys
first = {}
for command in json.load(open(sys.argv[1])):
    first.setdefault(command["file"], command)
json.dump(list(first.values()), open(sys.argv[2], "w"), indent=1)
END
    build=$build/tidy
fi
if [ $# -gt 0 ]; then
    files=("$@")
else
    # Other systems' headers are not here, nor MPI's.
    mapfile -t files < <(git ls-files -- 'memory/*.c' 'trainer/*.c' 'proto/*.c' 'sdk/*.c' 'server_mock/*.c' 'programs/*.c' 'samples/*.c' |
        grep -vE '^memory/src/base/platform_(apple|windows)\.c$|^samples/tools/memory/ranks_mpi\.c$')
fi
# What is left of its standard error counts warnings that were not shown.
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 1 "$tidy" -p "$build" --quiet 2> >(grep -v ' generated\.$' >&2 || true)
