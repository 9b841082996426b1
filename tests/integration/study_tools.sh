# What the scripts of dunlin-study have in common: the folder of programs, a folder to work in, what is expected of a command.
# Sourced by them, with their arguments.
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset DUNLIN_DATA

fail() {
    echo "${0##*/}: $*"
    exit 1
}

# expect STATUS TEXT COMMAND...: the exit status, and one line on stderr that says TEXT.
expect() {
    local wanted=$1 text=$2 got=0
    shift 2
    "$@" >/dev/null 2>"$work/error" || got=$?
    if [ "$got" != "$wanted" ] || ! grep -q -- "$text" "$work/error" || [ "$(wc -l <"$work/error")" -gt 1 ]; then
        fail "$* gave $got and: $(cat "$work/error")"
    fi
}
