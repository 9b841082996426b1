#!/bin/bash
# torchvision's networks and BERT-small as PyTorch exports them, against PyTorch: read, predicted, trained, written,
# checked by onnx.checker. onnx_nets.sh CHECK_NETS FOLDER [NAME...]: makes them in the folder if they are not there.
# 77: this machine has no PyTorch.
set -uo pipefail
check=$(realpath "$1")
folder=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import torch, torchvision, onnx' >/dev/null 2>&1 && python=$candidate && break
done
if [ -z "$python" ]; then
    echo "skipped: no Python here has torch, torchvision and onnx"
    exit 77
fi
mkdir -p "$folder"
if [ -z "$(ls "$folder"/*.expect 2>/dev/null)" ]; then
    "$python" "$here/../../golden/make_onnx.py" --nets "$folder" "$@" 2>"$folder/make.log" || {
        tail -5 "$folder/make.log"
        exit 1
    }
fi
rm -f "$folder"/*.ours.onnx
result=0
"$check" "$folder" || result=1
"$python" "$here/check_onnx.py" "$folder"/*.ours.onnx || result=1
exit $result
