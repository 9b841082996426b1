#!/bin/bash
# bare.sh BUILD PROGRAM: a program that only trains holds none of what it does not ask for: published policies, drawing,
# readers of data sets, ready-made networks, the ONNX writer. What belongs to each is read from its objects.
set -euo pipefail
build=$1
program=$2
held=$(nm --defined-only "$program" | awk '{print $3}' | sort -u)
failed=0

# none NAME OBJECTS...
none() {
    local name=$1 object both
    shift
    [ $# -gt 0 ] || { echo "bare.sh: no objects of $name in $build" >&2; exit 2; }
    for object in "$@"; do
        both=$(comm -12 <(nm -g --defined-only "$object" | awk '{print $3}' | sort -u) <(echo "$held"))
        [ -z "$both" ] || { echo "$name: $(basename "$object" .o): $(echo "$both" | tr '\n' ' ')"; failed=1; }
    done
}

trainer=$build/trainer/CMakeFiles/dunlin_trainer.dir/src
mapfile -t policies < <(find "$build"/*/CMakeFiles/dunlin_*_baselines.dir -name '*.c.o')
mapfile -t drawing < <(find "$build"/*/CMakeFiles/dunlin_*_tools.dir -name 'draw*.c.o')
mapfile -t data < <(find "$trainer/data" -name '*.c.o' ! -path '*/files/*')
none "published policies" "${policies[@]}"
none "drawing" "${drawing[@]}"
none "data sets" "${data[@]}"
none "ready-made networks" "$trainer"/model/zoo/*.o
none "ONNX writer" "$trainer"/convert/write/*.o
[ $failed = 0 ] && echo "none of what it does not ask for; $(stat -c %s "$program") bytes"
exit $failed
