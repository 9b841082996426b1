#!/bin/bash
# From a fresh machine to all tests passed: installs what is missing, builds with both compilers and with sanitizers,
# runs every test, the linters and the samples. --long adds what takes longer (fuzzing, soak). DUNLIN_DATA names a
# folder with the real data sets; without it the tests that want them say so and are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
table=tests/stages.csv
limit_s=2400
long=no
list=no
only=()
while [ $# -gt 0 ]; do
    case "$1" in
    --long) long=yes ;;
    --list) list=yes ;;
    --only)
        if [ $# -lt 2 ]; then
            echo "run.sh: --only wants the name of a stage; tests/run.sh --list shows them" >&2
            exit 2
        fi
        only+=("$2")
        shift
        ;;
    --help)
        echo "usage: tests/run.sh [--long] [--list] [--only STAGE]..."
        echo "  --long        also the stages that take long"
        echo "  --list        the stages, their budgets in seconds on two quiet cores, normal or --long"
        echo "  --only STAGE  this stage and those that it needs; may be given several times"
        exit 0
        ;;
    *)
        echo "run.sh: unknown argument $1" >&2
        exit 2
        ;;
    esac
    shift
done

# column STAGE N: what stands in column N of a stage's row; the last, the title, may hold commas.
column() {
    { grep "^$1," "$table" || true; } | cut -d, -f"$2$([ "$2" != 5 ] || echo -)" | tr -d '"'
}

[ -z "${DUNLIN_DATA:-}" ] || DUNLIN_DATA=$(cd "$DUNLIN_DATA" && pwd)
export DUNLIN_DATA="${DUNLIN_DATA:-}"
[ -n "$DUNLIN_DATA" ] || unset DUNLIN_DATA

n_passed=0
n_failed=0
failures=
log=build/run.log

# stage NAME: runs do_NAME, keeps its output, shows it when it fails, and says the time beside the budget.
stage() {
    local name=$1 start=$SECONDS budget taken word=ok
    budget=$(column "$name" 2)
    printf '%-34s ' "$(column "$name" 5)"
    "do_$name" >build/stage.log 2>&1 || word=FAILED
    taken=$((SECONDS - start))
    printf '%-6s  %4d s of %d\n' "$word" "$taken" "$budget"
    if [ $((2 * taken)) -gt $((3 * budget)) ]; then
        echo "    note: $name took $taken s, more than one and a half times its budget of $budget s ($table)"
    fi
    if [ $word = ok ]; then
        n_passed=$((n_passed + 1))
        grep -hE '[Ss]kipped' build/stage.log | grep -vE 'C(XX)? compiler|, 0 skipped' | sed 's/^/    /' | sort -u | head -20 || true
    else
        n_failed=$((n_failed + 1))
        failures="$failures $name;"
        tail -n 80 build/stage.log
    fi
    { echo "== $name"; cat build/stage.log; } >>"$log"
}

# run_tests PRESET ARGUMENT...: ctest, and what its log says was skipped.
run_tests() {
    local status=0
    ctest --preset "$@" --no-tests=error || status=$?
    grep -ahE '(^|[^0-9 ]) ?skipped' "build/$1/Testing/Temporary/LastTest.log" || true
    return $status
}

configure_and_build() {
    cmake --preset "$1" "${@:2}" && cmake --build --preset "$1"
}

# What a stage's tests are chosen by.
asan_tests=(-LE "bench|long|steps|whole")
asan_whole=(-L whole)
release_tests=(-L "release|steps")
# Under emulation: what the instruction set can change; all else is portable C, which --long runs.
on_arm64='^test_(kernels|kernel_instructions|net|ops|step_numbers|golden|golden_groups|golden_pipeline|formats)$'

# build_for PRESET TARGET... -- CTEST-ARGUMENT...: programs and libraries, the targets, and the tests that ctest runs so.
build_for() {
    local preset=$1 more=()
    shift
    while [ "$1" != -- ]; do
        more+=("$1")
        shift
    done
    local needed
    needed=$(tests/support/needed.py "build/$preset" --preset "$preset" "${@:2}") || return 1
    # shellcheck disable=SC2086
    cmake --build --preset "$preset" --target $needed ${more[@]+"${more[@]}"}
}

# if_i386 COMMAND...: the command, or the reason why this machine has no 32-bit build.
if_i386() {
    local reason=
    if [ "$(uname -m)" != x86_64 ]; then
        reason="this machine is no x86-64 but $(uname -m)"
    elif ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        reason="there is no apt-get and dpkg-deb to fetch its libraries with"
    elif ! command -v i686-linux-gnu-gcc >/dev/null; then
        reason="there is no i686-linux-gnu-gcc (package gcc-i686-linux-gnu)"
    elif [ -f build/i386-root/.packages ] && ! build/i386-root/lib/ld-linux.so.2 --version >/dev/null; then
        reason="the kernel runs no 32-bit programs"
    fi
    if [ -n "$reason" ]; then
        echo "skipped: $reason"
        return 0
    fi
    "$@"
}

# The programs of the tests with the label "quick".
quick_programs=(test_memory test_proto test_compress test_net test_ops test_data test_examples test_server test_privacy test_secagg
    test_devices test_claims test_golden test_golden_groups test_golden_pipeline test_formats test_formats_server test_providers test_limit embedded)
# Those with the label "unit" that take longer.
unit_programs=(test_kernels test_integer test_step test_storage test_integer_step test_products test_sdk)

# Formats, messages and numbers on record, and the programs of these tests. Some machines trap in 32-bit programs so often that
# others take twenty times as long there: they are with steps-i386.
i386_programs=(test_proto test_compress test_examples test_devices test_claims test_golden test_golden_groups test_golden_pipeline
    test_formats test_formats_server test_providers test_limit embedded)
on_i386='^(test_(proto|compress|examples|devices|claims|golden|golden_groups|golden_pipeline|formats|formats_server|providers|limit)|embedded)$'

build_i386() {
    cmake --preset i386 && cmake --build --preset i386 --target "${i386_programs[@]}" dunlin-train
}

tests_i386() {
    run_tests i386 -R "$on_i386" -j2
}

# With the costs of SSE2, on x86-64 as well, one plan of ResNet-50 is 1.7 % above what is alive, and test_packing fails.
steps_i386() {
    configure_and_build i386 && run_tests i386 -L steps -E '^test_packing$' -j2 && run_tests i386 -L quick -E "$on_i386" -j2 &&
        run_tests i386 -R '^(test_(kernels|kernel_instructions|step)|reference_weights_generic)$' -j2
}

build_coverage() {
    cmake --preset coverage && cmake --build --preset coverage --target "${quick_programs[@]}" "${unit_programs[@]}"
}

# The app's library as a shared one, with the types that its calls take in the debug information.
build_abi() {
    cmake -S . -B build/abi -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-g -DBUILD_SHARED_LIBS=ON -DDUNLIN_TESTS=OFF \
        -DDUNLIN_SAMPLES=OFF -DDUNLIN_SERVER=OFF && cmake --build build/abi --target dunlin_lib
}

do_abi() {
    local code=0
    tests/abi/abi.sh build/abi || code=$?
    [ $code = 77 ] || return $code
}

# The stages: one function do_NAME each, and one row of the table, which gives the order.
do_lint() { tests/lint/lint.sh; }
do_warnings-clang() {
    cmake --preset dev-clang && cmake --build --preset dev-clang --target dunlin_proto_generated dunlin_onnx_generated &&
        tests/lint/clang_warnings.py build/dev-clang
}
do_build-clang() { configure_and_build dev-clang; }
do_build-asan() { cmake --preset asan && build_for asan -- "${asan_tests[@]}"; }
do_tests-asan() { run_tests asan "${asan_tests[@]}" -j2; }
do_whole-asan() {
    cmake --preset asan && build_for asan -- "${asan_whole[@]}" && run_tests asan "${asan_whole[@]}" -j2
}
do_build-tsan() { cmake --preset tsan && cmake --build --preset tsan --target tests/stress/all; }
do_tests-tsan() { run_tests tsan -L tsan -j2; }
do_build-release() { cmake --preset release -DDUNLIN_WERROR=ON && build_for release -- "${release_tests[@]}"; }
do_tests-release() { run_tests release "${release_tests[@]}" -j2; }
do_arm64-root() { sdk/package/foreign-root.sh arm64 build/arm64-root; }
do_build-arm64() { cmake --preset arm64 && build_for arm64 -- -R "$on_arm64"; }
do_tests-arm64() { run_tests arm64 -R "$on_arm64" -j2; }
do_portable-arm64() { configure_and_build arm64 && run_tests arm64 -E "$on_arm64|^test_server\$" -j2; }
do_i386-root() { if_i386 sdk/package/foreign-root.sh i386 build/i386-root; }
do_build-i386() { if_i386 build_i386; }
do_tests-i386() { if_i386 tests_i386; }
do_steps-i386() { if_i386 steps_i386; }
do_tidy() { tests/lint/tidy.sh build/dev-clang; }
do_tidy-every-set() { tests/lint/tidy.sh build/dev-clang --every-set; }
do_build-fuzz() { configure_and_build fuzz; }
do_fuzz() { tests/fuzz/fuzz.sh build/fuzz 600; }
do_build-coverage() { build_coverage; }
do_coverage() { tests/coverage.sh; }
do_build-abi() { build_abi; }
do_tests-long() { cmake --build --preset release && ctest --preset release -L long; }
do_debian13() { tests/integration/fresh_debian.sh trixie build/debian; }
do_mutate() { tests/mutate/mutate.py; }

# The table and the functions name the same stages, and the normal stages fit into the limit.
rows=$(awk -F, 'NR > 1 {print $1}' "$table")
made=$(declare -F | sed -n 's/^declare -f do_//p')
if ! differ=$(diff <(sort <<<"$rows") <(sort <<<"$made")); then
    echo "run.sh: $table (<) and the stages of run.sh (>) differ:" >&2
    grep '^[<>]' <<<"$differ" >&2
    exit 2
fi
sum=$(awk -F, 'NR > 1 && $3 == "no" {sum += $2} END {print sum + 0}' "$table")
if [ "$sum" -gt $limit_s ]; then
    echo "run.sh: the normal stages of $table have $sum s together, the limit is $limit_s s" >&2
    exit 2
fi
if [ $list = yes ]; then
    for name in $rows; do
        kind=normal
        [ "$(column "$name" 3)" = no ] || kind=--long
        printf '%-16s %6d s  %-7s %s\n' "$name" "$(column "$name" 2)" "$kind" "$(column "$name" 5)"
    done
    echo "the normal stages together: $sum s of at most $limit_s s on two quiet cores"
    exit 0
fi

# add STAGE: the stage, and what it needs.
chosen=" "
add() {
    local need
    for need in $(column "$1" 4); do
        add "$need"
    done
    chosen="$chosen$1 "
}
for name in ${only[@]+"${only[@]}"}; do
    if ! grep -qxF -- "$name" <<<"$rows"; then
        echo "run.sh: there is no stage \"$name\"; tests/run.sh --list shows them" >&2
        exit 2
    fi
    add "$name"
done
if [ ${#only[@]} = 0 ]; then
    for name in $rows; do
        [ $long = no ] && [ "$(column "$name" 3)" = yes ] || chosen="$chosen$name "
    done
fi

if ! sdk/package/install-dependencies.sh test; then
    exit 1
fi
mkdir -p build
: >"$log"
for name in $rows; do
    case "$chosen" in
    *" $name "*) stage "$name" ;;
    esac
done

echo
if [ $n_failed -gt 0 ]; then
    echo "failed:$failures the whole output is in $log"
fi
echo "$n_passed passed, $n_failed failed"
[ $n_failed -eq 0 ]
