#!/usr/bin/env bash
# About 3 minutes: kernels against float64, the engine against the oracles, nano's evaluation.
. tools/gpu/env.sh
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
# Beside each other; the largest cases take 20 GB each. Four files compile and count, without a GPU.
timeout -k 5 200 python3 -m pytest -o addopts= -q -p no:cacheprovider --timeout 100 -n 4 \
  tests/kernels/fused tests/kernels/cuda tests/layers --ignore tests/kernels/fused/test_compiles.py \
  --ignore tests/kernels/fused/test_small_variants.py \
  --ignore tests/kernels/fused/test_attention_variants.py \
  --ignore tests/kernels/fused/test_mxfp4_stream_compiles.py \
  --ignore tests/kernels/fused/test_wgmma_overlap.py >"$OUT/kernels-tests.txt" 2>&1 &
timeout -k 5 200 python3 -m recipes.nano.evaluate --device cuda >"$OUT/nano.txt" 2>&1 &
tests 200 -n 4 tests/gpu/test_fused_engine.py tests/gpu/test_cuda_engine.py tests/gpu/test_fa3.py \
  tests/gpu/test_step_loop.py -k "not full_size"
wait
grep -aE "^(FAILED|ERROR|E  )|passed|failed" "$OUT/kernels-tests.txt" | cut -c1-200
tail -n 25 "$OUT/nano.txt"
