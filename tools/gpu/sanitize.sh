#!/usr/bin/env bash
# The kernels' tests at small shapes under compute-sanitizer: sanitize.sh [TOOL [SECONDS [FILES]]].
#
# TOOL is memcheck, racecheck or initcheck. Files of tests run side by side, 16 or more cores, the
# long ones in parts; each tells its count of errors. Without PyTorch's cache every tensor is an
# allocation of its own, whose borders are watched; graphs cannot be captured then.
. tools/gpu/env.sh
tool=${1:-memcheck} limit=${2:-300}
files=${3:-"experts_fused fused_attention linear_fp8_fused linear_bf16_fused mxfp4_tiles norm_fused \
  qkv_bf16_fused quantize_rows rope_kv_fused routing_fused sampling_fused swiglu_fused top_k_top_p"}
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
large="full_size or 131072 or 8192 or 8191 or 65536 or 400000 or 16384 or whole_vocabulary or 201088"
large+=" or beyond_two or every_quotient or gpt-oss or graph or early or no_step_waits or uploads"
declare -A parts=(
  [fused_attention]="test_batches;head_layouts;block_sizes;splits;not (test_batches or head_layouts or block_sizes or splits)"
  [experts_fused]="fp8;mxfp4;not (fp8 or mxfp4)"
)
for file in $files; do
  number=0
  while IFS= read -r part; do
    number=$((number + 1))
    timeout -k 5 "$limit" compute-sanitizer --tool "$tool" --error-exitcode 9 \
      python3 -m pytest -o addopts= -q -p no:cacheprovider "tests/kernels/fused/test_$file.py" \
      -k "not ($large) and ($part)" >"$OUT/$tool-$file-$number.txt" 2>&1 &
  done < <(tr ';' '\n' <<<"${parts[$file]:-test}")
done
wait
for each in "$OUT/$tool"-*.txt; do
  echo "$(basename "$each"): $(grep -aE 'passed|failed' "$each" | tail -n 1); $(grep -a SUMMARY "$each")"
done
tar czf "$OUT/$tool.tgz" -C "$OUT" $(cd "$OUT" && ls "$tool"-*.txt) && rm "$OUT/$tool"-*.txt
