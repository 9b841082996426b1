#!/bin/bash
# all.sh BIN: measures what the READMEs say and writes it there: results/figures.csv, the chart, the pages. DUNLIN_DATA names the
# folder with the real data sets. On a machine that does nothing else; about ten minutes. compare_torch.py is run by hand: it
# needs PyTorch, an hour and a quiet machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ $# != 1 ]; then
    echo "usage: tests/bench/all.sh BIN, the folder of the release build's programs" >&2
    exit 2
fi
tests/bench/figures.py measure "$1"
for python in python3 /usr/bin/python3; do
    if "$python" -c 'import matplotlib' 2>/dev/null; then
        "$python" tests/bench/chart.py
        break
    fi
done
tests/bench/figures.py write
