#!/bin/sh
# From a fresh machine to a finished federated run: installs what is missing, builds, starts the mock server over HTTPS,
# runs a fleet of simulated phones on a synthetic data set, prints the accuracy of each round and leaves a report file.
# Arguments are passed on to dunlin-fleet.
set -eu
cd "$(dirname "$0")/.."

sdk/package/install-dependencies.sh build
cmake --preset release -DDUNLIN_TESTS=OFF >build-release.log 2>&1 || {
    cat build-release.log >&2
    echo "quickstart: configuring failed" >&2
    exit 1
}
cmake --build --preset release >build-release.log 2>&1 || {
    tail -n 40 build-release.log >&2
    echo "quickstart: the build failed" >&2
    exit 1
}
rm -f build-release.log

report=build/quickstart-report.html
build/release/bin/dunlin-fleet --serve --clients 48 --cohort 20 --rounds 12 --model lenet5 \
    --dataset synthetic --partition writers --epochs 4 --batch 8 --lr 0.015 --lr-decay 0.95 \
    --budget 2MiB --seed 1 \
    --report "$report" --json build/quickstart.json "$@"
echo "report: $report"
