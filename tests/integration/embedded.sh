#!/bin/bash
# embedded.sh PROGRAM: runs it in an empty folder of its own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$@" "$folder"
