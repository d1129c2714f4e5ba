#!/usr/bin/env bash
# At most 10 minutes: every kernel's time, loading 13.8 GB, prefill in FP8.
. tools/gpu/env.sh
TAIL=70 step "kernels" 200 python3 -m bench.kernels --samples 10 --json "$OUT/kernels.json" --only \
  "^(attention (prefill|turn|decode [0-9x+]+ (full|window)|mix)|experts .* (fp8|mxfp4) 120b tokens=(1|8|64|256|8192)$|linear|rms|add|rope|route|swiglu|combine|sampling)"
step "load" 90 python3 bench/load.py /tmp/checkpoint --quantization mxfp4 --alone
step "prefill of 120B in FP8" 100 python3 -m rose bench prefill gpt-oss-120b --load-format dummy \
  --quantization fp8 --dense-quantization fp8 --input 8192,32768 --runs 2 \
  --out "$OUT/prefill-120b-fp8.json"
TAIL=50 step "profile of prefill" 70 python3 -m rose bench profile gpt-oss-120b \
  --load-format dummy --quantization mxfp4 --phase prefill --tokens 8192 --steps 2 \
  --out /tmp/profile-prefill
cp /tmp/profile-prefill/kernels.txt "$OUT/profile-prefill.txt"
tests 110 tests/gpu/test_loading.py tests/gpu/test_cuda_engine.py \
  -k "full_size or loading or layout or peak or heaviest or buffers or ring or counted"
