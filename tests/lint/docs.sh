#!/bin/bash
# The public headers make pages without a warning, and a call that nobody has documented the right way is noticed.
# docs.sh DOXYFILE FOLDER: the build's, and where this may write.
set -euo pipefail
if ! command -v doxygen >/dev/null 2>&1; then
    echo "docs: skipped, doxygen is not installed"
    exit 77
fi
rm -rf "$2"
mkdir -p "$2/planted"
{ cat "$1"; echo "OUTPUT_DIRECTORY = \"$2\""; } >"$2/Doxyfile"
if ! doxygen "$2/Doxyfile"; then
    echo "docs: doxygen warns about the public headers"
    exit 1
fi
if ! grep -q dunlin_trainer_step "$2/html/"*trainer*.html; then
    echo "docs: the pages have no dunlin_trainer_step()"
    exit 1
fi
# A header with a fault: a parameter that the call does not have.
printf '/** @file */\n/** Does it. @param gone is not there. @return nothing. */\nint dunlin_planted(int here);\n' >"$2/planted/planted.h"
{ cat "$1"; echo "OUTPUT_DIRECTORY = \"$2/planted\""; echo "INPUT = \"$2/planted\""; } >"$2/planted/Doxyfile"
if doxygen "$2/planted/Doxyfile" 2>/dev/null; then
    echo "docs: a documented parameter that a call does not have went unnoticed"
    exit 1
fi
