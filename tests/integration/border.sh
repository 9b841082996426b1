#!/bin/bash
# border.sh CHECK_NETS GOLDEN WORK: border.py with a Python that has onnx. 77: this machine has none.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for python in python3 /usr/bin/python3; do
    if "$python" -c 'import numpy, onnx' >/dev/null 2>&1; then
        exec "$python" "$here/border.py" "$@"
    fi
done
echo "skipped: no Python here has onnx (python3-onnx)"
exit 77
