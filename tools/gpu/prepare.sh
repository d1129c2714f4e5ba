#!/usr/bin/env bash
# Compile the kernels of gpt-oss for Hopper, on a machine without a GPU, into build/gpu/triton.tgz.
#
# The first argument is a Python of the GPU machine's version with its versions of torch and Triton:
# compiled kernels are found again only by the same ones, and only while their sources stay.
set -euo pipefail
python=${1:?"the path of a Python like the GPU machine's"}
unset TRITON_INTERPRET
export PYTHONPATH=. TRITON_CACHE_DIR=/tmp/triton
rm -rf /tmp/triton
mkdir -p /tmp/shape build/gpu
"$python" -m tools.compile_kernels >/dev/null
for quantization in mxfp4 fp8; do
  for shape in gpt-oss-20b gpt-oss-120b; do
    "$python" -m tests.worker.rehearsed_engine "$quantization" /tmp/shape --shape "$shape" >/dev/null
  done
done
"$python" -m tests.worker.rehearsed_engine mxfp4 /tmp/shape >/dev/null
tar czf build/gpu/triton.tgz -C /tmp triton
ls -l build/gpu/triton.tgz
