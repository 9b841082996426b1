#!/bin/bash
# What can be said of the built library: only dunlin_ symbols leave it, and no object has writable globals.
# symbols.sh LIBRARY
set -euo pipefail
library=$1
failed=0
strange=$(nm -g --defined-only "$library" 2>/dev/null | awk 'NF == 3 {print $3}' | grep -vE '^dunlin_|^_?_?asan|^__(start|stop)_|_msg$|^__odr|^__ubsan' | sort -u || true)
if [ -n "$strange" ]; then
    echo "symbols that do not begin with dunlin_:"
    echo "$strange"
    failed=1
fi
# D, B, C: initialised and zeroed data that is writable. d, b the same, private to a file.
writable=$(nm "$library" 2>/dev/null | awk '$2 ~ /^[DBCdb]$/ {print $3}' | grep -vE '_msg$|^__|asan|ubsan|^\.L|lock$' | sort -u || true)
if [ -n "$writable" ]; then
    echo "writable globals (a lock may be one, named ..._lock):"
    echo "$writable"
    failed=1
fi
exit $failed
