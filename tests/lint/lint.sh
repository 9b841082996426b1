#!/bin/bash
# What can be said of the sources without building them: format, layers, banned calls, lengths.
set -uo pipefail
cd "$(dirname "$0")/../.."
failed=0
found_any=$(mktemp) # report runs in a pipeline, a shell of its own: what it finds is noted here
trap 'rm -f "$found_any"' EXIT

sources=$(git ls-files -- '*.c' '*.h' '*.cpp' | sort)
# Each version breaks lines in its own way; one decides.
format_version=14
format=$(command -v "clang-format-$format_version" || command -v clang-format || true)
if [ -z "$format" ]; then
    echo "format: skipped, clang-format is not installed"
elif ! "$format" --version | grep -q "version $format_version\."; then
    echo "format: skipped, clang-format $format_version decides, and this is $("$format" --version)"
else
    # shellcheck disable=SC2086
    "$format" --dry-run -Werror $sources || failed=1
fi

# report TEXT: prints what grep found, if anything, and remembers the failure.
report() {
    local found
    found=$(cat)
    if [ -n "$found" ]; then
        printf '%s\n%s\n' "$1" "$found"
        echo "$1" >>"$found_any"
    fi
}

# Layers: what a folder may not include.
up() {
    local folder=$1 pattern=$2
    shift 2
    git ls-files -- "$folder/*.c" "$folder/*.h" | grep -vE "${1:-^$}" |
        xargs -r grep -nE "#include *[<\"]($pattern)" | report "$folder includes upward:"
}
up memory 'train/|wire/|dunlin/(model|dataset|source|trainer|tools|client|learner|builtin|server)|net/|step/'
up trainer 'wire/|dunlin/(client|learner|builtin|server)|curl/|sqlite3|mbedtls/'
up proto 'dunlin/(model|dataset|source|trainer|tools|client|learner|builtin|server)|curl/|sqlite3|microhttpd'
up sdk 'dunlin/(model|dataset|source|trainer|tools|builtin|server)|net/|step/|mem/(graph|plan|arena)|microhttpd' \
    '^sdk/(src/builtin/[a-z_]*\.[ch]|include/dunlin/(builtin|dunlin)\.h)$'
up server_mock 'dunlin/(client|learner|builtin)|dunlin/(model|dataset|source|trainer|tools)|curl/' \
    '^server_mock/src/model/evaluate[a-z_]*\.c$'
# The server's program is one of those that hold a server: what is inside is none of its business.
up server_mock/program '[./]*(src|api|base|faults|http|model|requests|rounds|server|state|task)/|mem/|wire/'
# What is not installed is none of a sample's, and what all programs have in common knows neither client nor server.
up programs 'dunlin/(client|learner|builtin|server|model|dataset|source|trainer|tools)|mem/|wire/|net/|step/|onnx/|kernels/'
up samples 'dunlin/server|mem/|wire/|net/|step/|onnx/|kernels/' '^samples/tools/memory/'
# Runs in memory join the inside of client and server; of the trainer they have what everybody has.
up samples/tools/memory 'net/|step/|onnx/|kernels/'

# Folders of a layer, by their includes; the build's test lint_folders looks at the symbols too.
tests/lint/folders.py | report "folders of a layer that include upward:"

# Words that only this project used: a list of phrases, and what is left of them.
tests/lint/phrases.py | report "phrases with a plainer word (tests/lint/phrases.txt):"

# Public headers: @return, numbers of enum values, INITs.
tests/lint/header_lint.py | report "what public headers owe their readers:"

# Texts of errors.
tests/lint/messages.py | report "texts of errors that break the rule in tests/lint/messages.py:"

# Each folder of product code has tests that would see a changed line of it.
tests/mutate/mutate.py --list --count 0 2>&1 | report "the table PROGRAMS of tests/mutate/mutate.py lacks a folder:"

# The trainer's lower.c alone knows both the training graph and the planner's.
libraries=$(git ls-files -- 'memory/*.c' 'trainer/*.c' 'proto/*.c' 'sdk/*.c')
echo "$libraries" | xargs grep -nE '(^|[^_a-zA-Z0-9])(sprintf|strcpy|strcat|strtok|atoi|atof|rand|srand|gets|alloca|exit|abort|printf|puts|system)\(' |
    report "banned calls in the libraries:"
echo "$libraries" | grep -v 'memory/src/base/support.c' |
    xargs grep -nE '(^|[^_a-zA-Z0-9])(malloc|calloc|realloc|free)\(' | grep -v 'sqlite3_\|cleanup: libc' |
    report "allocation outside the hooks:"

echo "$libraries" | grep -v '^memory/src/base/platform_' |
    xargs grep -nE '(^|[^_a-zA-Z0-9])(mmap|munmap|mprotect|madvise|fsync|fdatasync|posix_fallocate|posix_fadvise|statfs|sysconf|open|socket)\(|(O|SOCK)_CLOEXEC|O_DIRECT|O_TMPFILE|__linux__|__APPLE__|_WIN32' |
    report "what belongs into memory/src/base/platform_*.c:"

# Files that may be longer, with the reason; a list that says too much is as wrong as a file that is too long.
most_lines=500
long_files=tests/lint/long_files.txt
for file in $sources; do
    lines=$(wc -l <"$file")
    [ "$lines" -le "$most_lines" ] || grep -q "^$file " "$long_files" ||
        echo "$file: $lines lines, more than $most_lines"
done | report "long files:"
grep -v '^#' "$long_files" | while read -r file reason; do
    if ! git ls-files --error-unmatch -- "$file" >/dev/null 2>&1; then
        echo "$file: listed, but not there"
    elif [ "$(wc -l <"$file")" -le "$most_lines" ]; then
        echo "$file: listed, but not longer than $most_lines lines"
    elif [ -z "$reason" ]; then
        echo "$file: listed without a reason"
    fi
done | report "long_files.txt:"

# Functions, with a list of the same kind.
tests/lint/functions.py | report "long functions:"

# A script's folder is the first that Python looks in, so a name of its own modules there hides that one from all of them.
git ls-files -- '*.py' | python3 -c 'import pathlib, sys
for path in map(pathlib.Path, sys.stdin.read().split()):
    if path.stem in getattr(sys, "stdlib_module_names", ()): print(path)' | report "scripts with the name of a module of Python:"

git grep -nE '/(work|farm|root)/|/tmp/ba[s]h' -- . ':!tests/lint/lint.sh' | report "paths of a machine:"
git grep -nE '\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b' -- '*.c' '*.h' '*.sh' '*.cmake' '*.proto' ':!tests/lint/lint.sh' |
    report "left-overs:"

[ -s "$found_any" ] && failed=1
[ $failed = 0 ] && echo "lint: clean"
exit $failed
