#!/usr/bin/env bash
# The kernels' tests at small shapes under compute-sanitizer: TOOL is memcheck, racecheck or initcheck.
#
# A file of tests a process, side by side, 16 or more cores; each prints its count of errors. Without
# PyTorch's cache every tensor is an allocation of its own, whose borders are watched.
. tools/gpu/env.sh
tool=${1:-memcheck} limit=${2:-240}
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
large="full_size or 131072 or 8192 or 8191 or 65536 or 400000 or 16384 or whole_vocabulary or 201088"
large+=" or beyond_two or every_quotient or gpt-oss or graph or early or no_step_waits or uploads"
for file in experts_fused fused_attention linear_fp8_fused linear_bf16_fused mxfp4_tiles norm_fused \
  quantize_rows rope_kv_fused routing_fused router_fused sampling_fused swiglu_fused top_k_top_p; do
  path=tests/kernels/fused/test_$file.py
  [ -f "$path" ] || continue
  timeout -k 5 "$limit" compute-sanitizer --tool "$tool" --error-exitcode 9 \
    python3 -m pytest -o addopts= -q -p no:cacheprovider "$path" -k "not ($large)" \
    >"$OUT/$tool-$file.txt" 2>&1 &
done
wait
tail -qn 1 "$OUT/$tool"-*.txt
for each in "$OUT/$tool"-*.txt; do
  echo "$(basename "$each"): $(grep -aE 'passed|failed' "$each" | tail -n 1); $(grep -a SUMMARY "$each")"
done
tar czf "$OUT/$tool.tgz" -C "$OUT" $(cd "$OUT" && ls "$tool"-*.txt) && rm "$OUT/$tool"-*.txt
