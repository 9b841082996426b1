#!/bin/bash
# torchvision's networks and BERT-small as PyTorch exports them, against PyTorch: read, predicted, trained, written,
# checked by onnx.checker. onnx_nets.sh CHECK_NETS FOLDER [NAME...]: makes them in the folder if what is there is older
# than what makes it.
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
makers=$here/../../golden
made=$folder/make.log # is written last
if [ ! -f "$made" ] || [ -n "$(find "$makers" -maxdepth 1 -name '*.py' -newer "$made")" ]; then
    rm -f "$folder"/*.expect "$folder"/*.onnx "$made"
    "$python" "$makers/make_onnx.py" --nets "$folder" "$@" >"$folder/part.log" 2>&1 || {
        tail -5 "$folder/part.log"
        exit 1
    }
    mv "$folder/part.log" "$made"
    touch "$made"
fi
rm -f "$folder"/*.ours.onnx
result=0
"$check" "$folder" || result=1
"$python" "$here/check_onnx.py" "$folder"/*.ours.onnx || result=1
exit $result
