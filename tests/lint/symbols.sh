#!/bin/bash
# What can be said of the built library: only dunlin_ symbols leave it, and no object has writable globals.
# symbols.sh LIBRARY: the static library.
# symbols.sh --shared LIBRARY: the shared one, of which only the names that it exports count.
set -euo pipefail
if [ "$1" = --shared ]; then
    names=$(nm -D --defined-only "$2" | awk '{print $NF}')
    if ! grep -q '^dunlin_' <<<"$names"; then
        echo "$2 exports no dunlin_ name at all"
        exit 1
    fi
    strange=$(grep -v '^dunlin_' <<<"$names" | sort -u || true)
    if [ -n "$strange" ]; then
        echo "the shared library exports names that do not begin with dunlin_:"
        echo "$strange"
        exit 1
    fi
    exit 0
fi
library=$1
failed=0
strange=$(nm -g --defined-only "$library" 2>/dev/null | awk 'NF == 3 {print $3}' | grep -vE '^dunlin_|^_?_?asan|^__(start|stop)_|_msg$|^__odr|^__ubsan' | sort -u || true)
if [ -n "$strange" ]; then
    echo "symbols that do not begin with dunlin_:"
    echo "$strange"
    failed=1
fi
# Objects in sections that stay writable; constant tables of addresses (.data.rel.ro) do not.
writable=$(objdump -t "$library" 2>/dev/null | awk '$2 ~ /^[glOF]+$/ || $3 ~ /O/ {
        section = ""; for (i = 2; i <= NF; i++) if ($i ~ /^\./) { section = $i; break }
        if (section ~ /^\.(data|bss)/ && section !~ /^\.data\.rel\.ro/ && $NF !~ /^\./) print $NF }' |
    grep -vE 'lock$' | sort -u || true)
if [ -n "$writable" ]; then
    echo "writable globals (a lock may be one, named ..._lock):"
    echo "$writable"
    failed=1
fi
exit $failed
