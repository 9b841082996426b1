#!/bin/bash
# windows.sh: the platform file of Windows compiles, where MinGW-w64's compiler is installed (gcc-mingw-w64-x86-64).
set -euo pipefail
cd "$(dirname "$0")/../.."
compiler=x86_64-w64-mingw32-gcc
if ! command -v $compiler >/dev/null; then
    echo "skipped: $compiler is not installed"
    exit 77
fi
$compiler -std=c11 -O2 -Wall -Wextra -Wpedantic -Wconversion -Werror -Imemory/internal/base -Imemory/include \
    -fsyntax-only memory/src/base/platform_windows.c
echo "platform_windows.c compiles"
