#!/usr/bin/env bash
# At most 9 minutes: is every kernel right, does the engine run, how fast are kernels and decode.
. tools/gpu/env.sh
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
# The kernels' tests, beside the small runs; these four compile and count, which needs no GPU.
timeout -k 5 200 python3 -m pytest -o addopts= -q -p no:cacheprovider --timeout 100 -n 9 \
  tests/kernels/fused --ignore tests/kernels/fused/test_compiles.py \
  --ignore tests/kernels/fused/test_small_variants.py \
  --ignore tests/kernels/fused/test_attention_variants.py \
  --ignore tests/kernels/fused/test_wgmma_overlap.py --durations=8 >"$OUT/kernels-tests.txt" 2>&1 &
for options in "'cuda_graphs': False" ""; do
  step "nano with options {$options}" 80 python3 -c "
from rose.llm import LLM
from rose.protocol import SamplingParams
params = SamplingParams(max_tokens=8, temperature=0)
with LLM('nano', device='cuda', max_num_seqs=16, num_blocks=(64, 64), **{$options}) as llm:
    print(llm.generate([[1, 2, 3], [4] * 300], params)[0].token_ids)"
done
step "nano on the CPU" 60 python3 -c "
from rose.llm import LLM
from rose.protocol import SamplingParams
with LLM('nano', device='cpu') as llm:
    print(llm.generate([[1, 2, 3]], SamplingParams(max_tokens=8, temperature=0))[0].token_ids)"
tests 100 tests/gpu/test_step_loop.py
wait
tail -n 60 "$OUT/kernels-tests.txt" | cut -c1-200
dummy="--load-format dummy --quantization mxfp4"
step "decode of 20B" 110 python3 -m rose bench decode gpt-oss-20b $dummy \
  --max-model-len 40000 --context 8192 --batch 1,8,32,128 --steps 48 --out "$OUT/decode-20b.json"
TAIL=40 step "kernels" 110 python3 -m bench.kernels --samples 6 --json "$OUT/kernels.json" --only \
  "^(attention (prefill (8192|32768)|decode (1|128)x8192 (full|window))|experts .* (fp8|mxfp4) 120b tokens=(1|128|8192)$|linear fp8 qkv|add_rms|rope)"
step "prefill of 120B" 60 python3 -m rose bench prefill gpt-oss-120b $dummy \
  --input 8192 --runs 2 --out "$OUT/prefill-120b.json"
