#!/bin/bash
# What the compiler made of the kernels: instructions.sh SET OBJDUMP OBJECT...
# neon: the sources that multiply and add hold fused instructions over whole vectors. sse2: nothing in the objects
# needs more than the baseline of x86-64.
set -euo pipefail
set_name=$1
objdump=$2
shift 2
failed=0

# holds OBJECT PATTERN: how many instructions match.
holds() {
    "$objdump" -d --no-show-raw-insn "$1" | grep -cE "$2" || true
}

case "$set_name" in
neon)
    for source in gemm depthwise depthwise_grad; do
        n=0
        for object in "$@"; do
            case "$object" in */"$source".c.o) n=$(holds "$object" '\bfmla[[:space:]]+v[0-9]+\.4s') ;; esac
        done
        echo "$source: $n fused multiply-adds of four floats"
        [ "$n" -ge 8 ] || failed=1
    done
    ;;
sse2)
    for object in "$@"; do
        n=$(holds "$object" '%[yz]mm[0-9]|[[:space:]]v[a-z0-9]+[[:space:]]+.*%xmm')
        [ "$n" = 0 ] || { echo "$object: $n instructions of AVX"; failed=1; }
    done
    echo "$# objects of the baseline"
    ;;
*)
    echo "usage: instructions.sh neon|sse2 OBJDUMP OBJECT..." >&2
    exit 2
    ;;
esac
exit $failed
