#!/bin/sh
# Two machines and a proxy, as network namespaces: the server on one, devices on another, nginx with the tree's configuration between
# them on a third. Skipped (77) where namespaces may not be made; without nginx its part is. machines.sh FOLDER-OF-PROGRAMS SOURCE-TREE
set -eu
bin=$1
tree=$2
if [ "${3:-}" != inside ]; then
    unshare -rnm true 2>/dev/null || {
        echo "skipped: network namespaces may not be made here"
        exit 77
    }
    command -v ip >/dev/null || {
        echo "skipped: there is no ip (iproute2)"
        exit 77
    }
    exec unshare -rnm "$0" "$bin" "$tree" inside
fi
PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d)
server=
proxy=
stop() {
    [ -z "$1" ] || { kill "$1" 2>/dev/null && wait "$1" 2>/dev/null; } || true
}
trap 'stop "$server"; stop "$proxy"; rm -rf "$work"' EXIT
fail() {
    echo "machines.sh: $*" >&2
    tail -n 40 "$work"/*.log "$work"/*.out >&2 || true
    exit 1
}
mount -t tmpfs none /run || {
    echo "skipped: no place for the names of namespaces"
    exit 77
}
# A bridge here, and a namespace for each machine on it.
ip link add bridge type bridge && ip link set bridge up
number=1
for machine in server proxy devices; do
    ip netns add $machine
    ip link add "to-$machine" type veth peer name eth0 netns $machine
    ip link set "to-$machine" master bridge up
    ip -n $machine addr add "10.77.0.$number/24" dev eth0
    ip -n $machine link set eth0 up
    ip -n $machine link set lo up
    number=$((number + 1))
done
printf '127.0.0.1 localhost\n10.77.0.1 server.test\n10.77.0.2 proxy.test\n' >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts

mkdir "$work/trust" "$work/trust-proxy"
cat >"$work/task.json" <<'JSON'
{"population": "fleet", "task": "train", "model": "lenet5", "image": 28, "channels": 1, "classes": 10, "rounds": 2, "cohort": 4,
 "clients": 4, "deadline_s": 60, "plan": {"epochs": 1, "batch": 12, "lr": 0.02, "momentum": 0.9}}
JSON
for _ in 1 2 3 4; do head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; echo; done >"$work/tokens"
tail -n 1 "$work/tokens" | rev >"$work/secret"
# start NAME OPTION...: the server with a state of that name.
start() {
    name=$1
    shift
    rm -f "$work/port"
    ip netns exec server "$bin/dunlin-server" --listen 0.0.0.0:8443 --port-file "$work/port" --state "$work/$name" --task "$work/task.json" \
        --windows 1:50 --tokens "$work/tokens" --status-token "$work/secret" --test-set synthetic "$@" >"$work/$name.log" 2>&1 &
    server=$!
    for _ in $(seq 200); do
        [ ! -s "$work/port" ] || break
        kill -0 "$server" 2>/dev/null || fail "the server ended"
        sleep 0.05
    done
    cp "$work/$name/ca.pem" "$work/$name"/signing*.pub "$work/trust"
    cp "$work/$name"/signing*.pub "$work/trust-proxy"
}
fleet() { # FOLDER-WITH-CA URL OPTION...
    trust=$1
    url=$2
    shift 2
    timeout 60 ip netns exec devices "$bin/dunlin-fleet" --server "$url" --ca "$trust/ca.pem" --dataset synthetic --batch 12 --clients 4 \
        --max-examples 96 --rounds 2 --tokens "$work/tokens" --retry-ms 50:200 --retry-refused-ms 50:200 "$@"
}
expect() { # FILE TEXT
    grep -q "$2" "$1" || fail "$1 does not say: $2"
}

# Two machines.
start direct --name server.test
! openssl x509 -in "$work/direct/server.pem" -noout -text | grep -qF 'IP Address:0.0.0.0' || fail "0.0.0.0 is in the certificate"
fleet "$work/trust" https://server.test:8443 --status-token "$work/secret" >"$work/one.out" 2>&1 || fail "devices on another machine"
fleet "$work/trust" https://server.test:8443 >"$work/two.out" 2>&1 && fail "the status was told to another machine"
expect "$work/two.out" "This request came from 10.77.0.3"
fleet "$work/trust" https://10.77.0.1:8443 --status-token "$work/secret" >"$work/three.out" 2>&1 && fail "a name that is not in the certificate"
expect "$work/three.out" "TLS\|does not answer"
# The key is changed for the one that the devices hold in reserve; a new name comes in, over the same CA.
kill "$server" && wait "$server" || fail "the server ended badly"
"$bin/dunlin-server" --rotate-signing-key --state "$work/direct" >"$work/rotate.out" || fail "no rotation"
cp "$work/trust/signing-next.pub" "$work/next"
start direct --name server.test --name 10.77.0.1
cmp "$work/next" "$work/direct/signing.pub" || fail "another key signs than the one in reserve"
fleet "$work/trust" https://10.77.0.1:8443 --status-token "$work/secret" >"$work/four.out" 2>&1 || fail "an address as a name"
stop "$server"

if ! command -v nginx >/dev/null; then
    echo "no nginx: the part with the proxy is skipped"
    exit 0
fi
# A proxy with a certificate of another CA.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=proxy.test -addext subjectAltName=DNS:proxy.test \
    -keyout "$work/proxy.key" -out "$work/trust-proxy/ca.pem" 2>/dev/null
start behind --trusted-proxy 10.77.0.2
configure() { # the tree's file, with this test's places, and more changes
    sed -e "s#127.0.0.1:8444#10.77.0.1:8443#" -e "s#fl.example.org#proxy.test#" -e "s#/etc/dunlin/fullchain.pem#$work/trust-proxy/ca.pem#" \
        -e "s#/etc/dunlin/privkey.pem#$work/proxy.key#" -e "s#/var/lib/dunlin/state/ca.pem#$work/behind/ca.pem#" "$@" \
        "$tree/server_mock/deploy/nginx.conf" >"$work/nginx.conf"
    stop "$proxy"
    mkdir -p "$work/nginx"
    ip netns exec proxy nginx -e "$work/nginx.log" -c "$work/nginx.conf" -p "$work/nginx" \
        -g "daemon off; user root; pid $work/nginx.pid; error_log $work/nginx.log;" >"$work/nginx.out" 2>&1 &
    proxy=$!
    for _ in $(seq 100); do
        ! ip netns exec devices python3 -c 'import socket; socket.create_connection(("10.77.0.2", 8443), 1)' 2>/dev/null || return 0
        sleep 0.05
    done
    fail "nginx did not start"
}
# Set up wrongly first: the message says what was seen.
configure -e 's#proxy_set_header Host .*#proxy_set_header Host wrong.test;#'
timeout 4 ip netns exec devices "$bin/dunlin-fleet" --server https://proxy.test:8443 --ca "$work/trust-proxy/ca.pem" --dataset synthetic \
    --batch 12 --clients 4 --max-examples 96 --tokens "$work/tokens" --status-token "$work/secret" >"$work/five.out" 2>&1 || true
expect "$work/five.out" "the host wrong.test, which is what this server saw"
configure -e 's#proxy_set_header X-Forwarded-For .*##'
timeout 4 ip netns exec devices "$bin/dunlin-fleet" --server https://proxy.test:8443 --ca "$work/trust-proxy/ca.pem" --dataset synthetic \
    --batch 12 --clients 4 --max-examples 96 --tokens "$work/tokens" --status-token "$work/secret" >"$work/six.out" 2>&1 || true
expect "$work/six.out" "^dunlin-fleet: the proxy at 10.77.0.2 (--trusted-proxy) sent X-Forwarded-For: (none)"
configure
fleet "$work/trust-proxy" https://proxy.test:8443 --status-token "$work/secret" >"$work/seven.out" 2>&1 || fail "devices behind the proxy"
fleet "$work/trust-proxy" https://proxy.test:8443 >"$work/eight.out" 2>&1 && fail "the status was told through the proxy"
expect "$work/eight.out" "This request came from 10.77.0.3"
# The same proxy without a word to the server.
stop "$server"
start behind
fleet "$work/trust-proxy" https://proxy.test:8443 >"$work/nine.out" 2>&1 && fail "the status was told through a stray proxy"
expect "$work/nine.out" "This request came from 10.77.0.2 with the header X-Forwarded-For, so through a proxy that no --trusted-proxy names"
