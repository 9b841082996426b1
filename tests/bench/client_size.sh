#!/bin/bash
# What the client takes in an app: its heap while a model of 100 MB goes down and up (above what a first small HTTPS
# exchange left; at most 2 MiB), and stripped sizes. client_size.sh BUILD-FOLDER [MEGABYTES]
set -euo pipefail
build=$(realpath "$1")
megabytes=${2:-100}
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

if grep -qa -e __asan_init -e __tsan_init "$build/bin/bench_client"; then
    echo "skipped: a sanitizer has an allocator of its own"
    exit 77
fi
cat >"$work/task.json" <<JSON
{"population": "phones", "task": "heap", "rounds": 2, "cohort": 1,
 "tensors": [{"name": "weights", "shape": [$((megabytes * 250000))]}]}
JSON
"$build/bin/dunlin-server" --listen 127.0.0.1:0 --port-file "$work/port" --state "$work/state" --task "$work/task.json" \
    --log warning >"$work/log" 2>&1 &
server=$!
for _ in $(seq 200); do
    [ -s "$work/port" ] && break
    sleep 0.1
done
line=$("$build/bin/bench_client" "https://127.0.0.1:$(cat "$work/port")" "$work/state/ca.pem" "$work/state/signing.pub" "$work/store")
value() { sed -n "s/.*\"$1\": \([0-9]*\)[,}].*/\1/p" <<<"$line"; }
peak=$(value peak_above)
echo "heap: $(value heap_after_first_exchange) bytes after a first exchange, $peak more at most while $(value down) bytes came down and $(value up) went up"

strip -o "$work/small" "$build/bin/sample-03_own_learner"
size() { stat -Lc %s "$1"; }
echo "stripped program with the client, without the trainer: $(size "$work/small") bytes"
if [ -f "$build/bin/sample-02_join_federation" ]; then
    strip -o "$work/whole" "$build/bin/sample-02_join_federation"
    echo "stripped program with client and trainer: $(size "$work/whole") bytes"
fi
total=0
while read -r library; do
    total=$((total + $(size "$library")))
done < <(ldd "$build/bin/sample-03_own_learner" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p')
echo "shared libraries it needs, with all that they need (of the system, the C library among them): $total bytes"
[ "$peak" -le $((2 * 1024 * 1024)) ] || {
    echo "FAILED: more than 2 MiB of heap"
    exit 1
}
