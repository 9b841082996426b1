# shellcheck shell=bash
# What scripts that run dunlin-train have in common: source it with PROGRAM as the first argument. It goes to a folder of its own.
set -uo pipefail
program=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
unset DUNLIN_DATA
failed=0

complain() {
    echo "FAILED: $*"
    failed=1
}

# run STATUS ARG...: runs the program; with a status of 1 or 2 exactly one line on stderr.
run() {
    local expected=$1
    shift
    "$program" "$@" >out 2>err
    local status=$?
    [ $status = "$expected" ] || complain "status $status, not $expected: $* ($(head -n 2 err))"
    if [ "$expected" != 0 ] && [ "$(wc -l <err)" != 1 ]; then
        complain "not one line on stderr: $*: $(cat err)"
    fi
}

# error_has TEXT: the last error's line holds it.
error_has() {
    grep -qF -- "$1" err || complain "\"$1\" is not in: $(cat err)"
}

# value FILE KEY: a number or a text of a flat JSON object.
value() {
    sed -n "s/^ *\"$2\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$1" | head -n 1
}
