#!/bin/bash
# From a fresh machine to all tests passed: installs what is missing, builds with both compilers and with sanitizers,
# runs every test, the linters and the samples. --long adds what takes longer (fuzzing, soak). DUNLIN_DATA names a
# folder with the real data sets; without it the tests that want them say so and are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
long=no
for argument in "$@"; do
    case "$argument" in
    --long) long=yes ;;
    --help)
        echo "usage: tests/run.sh [--long]"
        exit 0
        ;;
    *)
        echo "run.sh: unknown argument $argument" >&2
        exit 2
        ;;
    esac
done
[ -z "${DUNLIN_DATA:-}" ] || DUNLIN_DATA=$(cd "$DUNLIN_DATA" && pwd)
export DUNLIN_DATA="${DUNLIN_DATA:-}"
[ -n "$DUNLIN_DATA" ] || unset DUNLIN_DATA

n_passed=0
n_failed=0
failures=
mkdir -p build
log=build/run.log
: >"$log"

# stage NAME COMMAND...: runs one stage, keeps its output, shows it when it fails.
stage() {
    local name=$1 start=$SECONDS
    shift
    printf '%-34s ' "$name"
    if "$@" >build/stage.log 2>&1; then
        n_passed=$((n_passed + 1))
        printf 'ok      %4d s\n' $((SECONDS - start))
        grep -hE '[Ss]kipped' build/stage.log | grep -vE 'C(XX)? compiler|, 0 skipped' | sed 's/^/    /' | sort -u | head -20 || true
    else
        n_failed=$((n_failed + 1))
        failures="$failures $name;"
        printf 'FAILED  %4d s\n' $((SECONDS - start))
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

build_baseline() {
    cmake --preset baseline && cmake --build --preset baseline --target test_kernels test_ops test_step test_golden
}

if ! sdk/package/install-dependencies.sh test; then
    exit 1
fi

stage "lint: format, layers, calls" tests/lint/lint.sh
stage "build: clang, warnings are errors" configure_and_build dev-clang
stage "build: gcc, sanitizers" configure_and_build asan
stage "tests, with sanitizers" run_tests asan -LE "bench|long|steps" -j2
stage "build: thread sanitizer" configure_and_build tsan
stage "tests, thread sanitizer" run_tests tsan -j2
stage "build: gcc, warnings are errors" configure_and_build release -DDUNLIN_WERROR=ON
stage "tests of the release build" run_tests release -L "release|steps" -j2
stage "arm64: libraries" sdk/package/arm64-root.sh build/arm64-root
stage "build: arm64" configure_and_build arm64
stage "tests, arm64 under qemu" run_tests arm64 -j2
stage "build: baseline x86-64" build_baseline
stage "tests, baseline x86-64" run_tests baseline
stage "clang-tidy" tests/lint/tidy.sh build/dev-clang
if [ $long = yes ]; then
    stage "build: fuzz targets" configure_and_build fuzz
    stage "fuzzing, 10 minutes a target" tests/fuzz/fuzz.sh build/fuzz 600
    stage "long tests" ctest --preset release -L long
fi

echo
if [ $n_failed -gt 0 ]; then
    echo "failed:$failures the whole output is in $log"
fi
echo "$n_passed passed, $n_failed failed"
[ $n_failed -eq 0 ]
