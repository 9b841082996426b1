#!/bin/sh
# Places that are proved, with the programs themselves: several fleets at one server, each device with a token of its own; a place that
# changes hands is told on both sides; without a proof nobody takes another's place. places.sh FOLDER-OF-PROGRAMS
set -eu
bin=$1
work=$(mktemp -d)
server=
stop_server() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        server=
    fi
}
trap 'stop_server; rm -rf "$work"' EXIT
fail() {
    echo "places.sh: $*" >&2
    cat "$work"/*.log "$work"/*.out >&2 || true
    exit 1
}
# start NAME OPTION...: a server over the state NAME; its address is in $url.
start() {
    name=$1
    shift
    rm -f "$work/port"
    "$bin/dunlin-server" --listen 127.0.0.1:0 --port-file "$work/port" --state "$work/$name" --task "$work/task.json" --windows 1:50 \
        --log debug "$@" >>"$work/$name.log" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        [ ! -s "$work/port" ] || break
        kill -0 "$server" 2>/dev/null || fail "the server ended"
        sleep 0.05
    done
    url=https://127.0.0.1:$(cat "$work/port")
}
fleet() {
    "$bin/dunlin-fleet" --server "$url" --ca "$work/$name/ca.pem" --dataset synthetic --batch 12 --max-examples 96 --rounds 2 --threads 1 \
        --retry-ms 50:200 --retry-refused-ms 50:200 "$@"
}
cat >"$work/task.json" <<'JSON'
{"population": "fleet", "task": "train", "model": "lenet5", "image": 28, "channels": 1, "classes": 10, "rounds": 2, "cohort": 4,
 "clients": 4, "deadline_s": 60, "plan": {"epochs": 1, "batch": 12, "lr": 0.02, "momentum": 0.9}}
JSON
for _ in 1 2 3 4; do head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; echo; done >"$work/tokens"

# Case D6 of the field report: two fleets of two devices each at a server of four.
start both --tokens "$work/tokens" --test-set synthetic
fleet --clients 2 --first-index 0 --all-clients 4 --tokens "$work/tokens" >"$work/one.out" 2>&1 &
one=$!
fleet --clients 2 --first-index 2 --all-clients 4 --tokens "$work/tokens" --json "$work/two.json" >"$work/two.out" 2>&1 || fail "the second fleet"
wait "$one" || fail "the first fleet"
python3 - "$work/two.json" <<'PYTHON' || fail "the figures"
import json, sys
run = json.load(open(sys.argv[1]))
assert [r["participants"] for r in run["rounds"]] == [4, 4], run["rounds"]
assert run["clients"] == 2, run["clients"]
PYTHON
! grep -q "changed hands" "$work/both.log" || fail "a place changed hands"
stop_server
while read -r token; do
    ! grep -q "$token" "$work/both.log" || fail "a token was logged"
    ! grep -aq "$token" "$work/both/server.db" || fail "a token is in the database"
done <"$work/tokens"

# Stores that are lost while a run waits: the used tokens give nothing back, until --allow-replace.
start lost --tokens "$work/tokens"
pids=
for copy in first second; do
    fleet --clients 2 --all-clients 4 --tokens "$work/tokens" >"$work/$copy.out" 2>&1 &
    pids="$pids $!"
    for _ in $(seq 200); do
        [ "$(grep -c "is taken" "$work/lost.log")" -lt 2 ] || break
        sleep 0.05
    done
done
wait_for() { # FILE TEXT
    for _ in $(seq 200); do
        ! grep -q "$2" "$1" || return 0
        sleep 0.05
    done
    fail "$1 does not say: $2"
}
wait_for "$work/second.out" "used by another key"
! grep -q "warning" "$work/first.out" || fail "the first owner lost its place"
stop_server
port=$(cat "$work/port")
start lost --tokens "$work/tokens" --allow-replace --listen "127.0.0.1:$port"
wait_for "$work/lost.log" "changed hands: another key enrolled for it by a token that was used before"
wait_for "$work/first.out" "this device's place was given to another key"
for pid in $pids; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
done
stop_server

# Without tokens two fleets get places by coming first, and nobody loses one.
start open --test-set synthetic
fleet --clients 2 --first-index 0 --all-clients 4 >"$work/four.out" 2>&1 &
one=$!
fleet --clients 2 --first-index 2 --all-clients 4 >"$work/five.out" 2>&1 || fail "the second fleet without tokens"
wait "$one" || fail "the first fleet without tokens"
! grep -q "changed hands" "$work/open.log" || fail "a place changed hands"
stop_server

# --serve takes them too, and what cannot be is refused in a line.
"$bin/dunlin-fleet" --serve --clients 4 --rounds 1 --dataset synthetic --max-examples 96 --tokens "$work/tokens" >"$work/six.out" 2>&1 ||
    fail "--serve --tokens"
expect() {
    wanted=$1
    shift
    if "$@" >"$work/no.out" 2>&1; then fail "accepted: $*"; fi
    grep -q -e "$wanted" "$work/no.out" || fail "does not say '$wanted': $*"
}
expect "no token for place 4" "$bin/dunlin-fleet" --server https://127.0.0.1:1 --ca "$work/both/ca.pem" --dataset synthetic \
    --max-examples 96 --clients 5 --tokens "$work/tokens"
expect "several fleets" "$bin/dunlin-fleet" --serve --first-index 2
expect "all-clients 3 is fewer" "$bin/dunlin-fleet" --server https://127.0.0.1:1 --ca x --clients 2 --first-index 2 --all-clients 3
expect "line 1: a line has a token and at most a place" "$bin/dunlin-server" --listen 127.0.0.1:0 --port-file "$work/port" --state "$work/no" \
    --task "$work/task.json" --tokens "$work/task.json"
