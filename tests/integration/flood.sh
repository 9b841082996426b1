#!/bin/sh
# Case D8 of the field report: while thousands of silent and dripping connections are open from the address of the honest devices too,
# these finish their round; the same with 1,024 descriptors, where the server says what it can hold. flood.sh FOLDER-OF-PROGRAMS
set -eu
bin=$1
work=$(mktemp -d)
server=
flood=
stop() {
    [ -z "$1" ] || { kill "$1" 2>/dev/null && wait "$1" 2>/dev/null; } || true
}
trap 'stop "$flood"; stop "$server"; rm -rf "$work"' EXIT
fail() {
    echo "flood.sh: $*" >&2
    tail -n 20 "$work"/*.log "$work"/*.out >&2 || true
    exit 1
}
cat >"$work/task.json" <<'JSON'
{"population": "fleet", "task": "train", "model": "lenet5", "image": 28, "channels": 1, "classes": 10, "rounds": 2, "cohort": 4,
 "clients": 4, "deadline_s": 120, "plan": {"epochs": 1, "batch": 12, "lr": 0.02, "momentum": 0.9}}
JSON
for _ in 1 2 3 4; do head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; echo; done >"$work/tokens"
cat >"$work/flood.py" <<'PYTHON'
"""Keeps N connections open: a third says nothing, a third sends a byte of a TLS record now and then, a third has made its
handshake and drips the headers of a request. Those that are closed are opened again. Says "full" when all are open once."""
import selectors, socket, ssl, sys, time
port, wanted = int(sys.argv[1]), int(sys.argv[2])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
n_closed = n_opened = 0
held = []
def connect(kind):
    plain = socket.create_connection(("127.0.0.1", port), 5)
    if kind == 2:
        plain = context.wrap_socket(plain)
        plain.send(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n")
    elif kind == 1:
        plain.send(b"\x16\x03\x01")
    plain.setblocking(False)
    return plain
last_drip = 0.0
is_full = False
while True:
    for _ in range(200):
        if len(held) >= wanted:
            break
        kind = 2 if n_opened % 20 == 0 else n_opened % 2
        n_opened += 1
        try:
            held.append((connect(kind), kind))
        except OSError:
            pass
    if n_opened >= wanted and not is_full:
        is_full = True
        print("full", flush=True)
    if time.monotonic() - last_drip > 2:
        last_drip = time.monotonic()
        still = []
        for one, kind in held:
            try:
                if kind == 2:
                    one.send(b"X")
                elif kind == 1:
                    one.send(b"\x01")
                try:
                    if one.recv(1) == b"":
                        raise OSError
                except (BlockingIOError, ssl.SSLWantReadError):
                    pass
                still.append((one, kind))
            except OSError:
                n_closed += 1
                one.close()
        held = still
    time.sleep(0.02)
PYTHON
# round DESCRIPTORS CONNECTIONS
round() {
    rm -rf "$work/port" "$work/state" "$work/flood.out"
    (ulimit -n "$1" && exec "$bin/dunlin-server" --listen 127.0.0.1:0 --port-file "$work/port" --state "$work/state" --task "$work/task.json" \
        --windows 1:50 --tokens "$work/tokens" --test-set synthetic) >"$work/server.log" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        [ ! -s "$work/port" ] || break
        sleep 0.05
    done
    (ulimit -n "$(ulimit -Hn)" && exec python3 "$work/flood.py" "$(cat "$work/port")" "$2") >"$work/flood.out" 2>&1 &
    flood=$!
    for _ in $(seq 1200); do
        ! grep -q full "$work/flood.out" || break
        kill -0 "$flood" 2>/dev/null || fail "the flood ended"
        sleep 0.05
    done
    grep -q full "$work/flood.out" || fail "the flood did not come up"
    timeout 90 "$bin/dunlin-fleet" --server "https://127.0.0.1:$(cat "$work/port")" --ca "$work/state/ca.pem" --dataset synthetic --batch 12 \
        --clients 4 --max-examples 96 --rounds 2 --tokens "$work/tokens" --retry-ms 50:500 >"$work/fleet.out" 2>&1 ||
        fail "honest devices did not finish beside $2 connections"
    kill -0 "$flood" || fail "the flood had ended"
    stop "$flood"
    flood=
    stop "$server"
    server=
    grep -q "holds at most" "$work/server.log" || fail "the server does not say what it can hold"
}
[ "$(ulimit -Hn)" -ge 6000 ] || {
    echo "skipped: $(ulimit -Hn) descriptors are too few for 5,000 connections"
    exit 77
}
round 5000 5000
round 1024 2000
grep -q "warning: http: holds at most 784 connections at a time: the limit of 1024 descriptors" "$work/server.log" ||
    fail "1,024 descriptors are not reported"
