#!/usr/bin/env bash
# At most 10 minutes: the machine's rates, 120B, and the engine against the oracles.
. tools/gpu/env.sh
step "roofline" 40 python3 -m rose bench roofline --repeat 10 --out "$OUT/roofline.json"
dummy="--load-format dummy --quantization mxfp4"
step "prefill of 120B" 110 python3 -m rose bench prefill gpt-oss-120b $dummy \
  --roofline "$OUT/roofline.json" --input 8192,128000 --runs 2 --out "$OUT/prefill-120b.json"
step "decode of 120B" 110 python3 -m rose bench decode gpt-oss-120b $dummy \
  --roofline "$OUT/roofline.json" --context 8192 --batch 1,8,32,128 --steps 48 \
  --out "$OUT/decode-120b.json"
TAIL=60 step "profile of decode" 80 python3 -m rose bench profile gpt-oss-120b $dummy \
  --phase decode --tokens 8192 --batch 1 --steps 16 --out /tmp/profile-decode
cp /tmp/profile-decode/kernels.txt "$OUT/profile-decode.txt"
tests 240 -n 4 tests/gpu/test_fused_engine.py tests/gpu/test_cuda_engine.py -k "not full_size"
