#!/usr/bin/env bash
# At most 10 minutes: does it run at all, is every kernel right, how fast does 20B decode.
. tools/gpu/env.sh
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
step "nano, with and without graphs" 90 python3 -c "
from rose.llm import LLM
from rose.protocol import SamplingParams
params = SamplingParams(max_tokens=8, temperature=0)
for options in ({'cuda_graphs': False}, {}):
    with LLM('nano', device='cuda', max_num_seqs=16, num_blocks=(64, 64), **options) as llm:
        print(llm.generate([[1, 2, 3], [4] * 300], params)[0].token_ids)"
step "nano on the CPU" 60 python3 -c "
from rose.llm import LLM
from rose.protocol import SamplingParams
with LLM('nano', device='cpu') as llm:
    print(llm.generate([[1, 2, 3]], SamplingParams(max_tokens=8, temperature=0))[0].token_ids)"
tests 100 tests/gpu/test_step_loop.py
step "decode of 20B" 130 python3 -m rose bench decode gpt-oss-20b --load-format dummy \
  --max-model-len 40000 --quantization mxfp4 --context 8192 --batch 1,8,32,128 --steps 48 \
  --out "$OUT/decode-20b.json"
# These four compile and count, which no GPU is needed for.
tests 210 -n 6 tests/kernels/fused --ignore tests/kernels/fused/test_compiles.py \
  --ignore tests/kernels/fused/test_small_variants.py \
  --ignore tests/kernels/fused/test_attention_variants.py \
  --ignore tests/kernels/fused/test_wgmma_overlap.py
