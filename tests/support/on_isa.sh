#!/bin/bash
# on_isa.sh HAS_ISA NAME COMMAND...: runs a command with the kernels of an instruction set; status 77 and a line where
# this machine lacks it.
set -euo pipefail
"$1" "$2"
export DUNLIN_ISA=$2
shift 2
exec "$@"
