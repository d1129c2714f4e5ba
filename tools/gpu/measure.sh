#!/usr/bin/env bash
# About 9 minutes: the tables of docs/performance.md, both models with MXFP4 experts.
. tools/gpu/env.sh
options="--load-format dummy --quantization mxfp4 --roofline $OUT/roofline.json"
TAIL=16 step "roofline" 40 python3 -m rose bench roofline --repeat 10 --out "$OUT/roofline.json"
for size in 120b 20b; do
  TAIL=12 step "prefill of $size" 110 python3 -m rose bench prefill "gpt-oss-$size" $options \
    --runs 2 --out "$OUT/prefill-$size.json"
  TAIL=26 step "decode of $size" 215 python3 -m rose bench decode "gpt-oss-$size" $options \
    --context 8192,32768 --batch 1,2,4,8,16,32,64,128 --steps 48 --out "$OUT/decode-$size.json"
done
for batch in 1 64; do
  TAIL=16 step "profile of decode, batch $batch" 60 python3 -m rose bench profile gpt-oss-120b \
    --load-format dummy --quantization mxfp4 --phase decode --tokens 8192 --batch $batch \
    --steps 32 --out /tmp/profile
  cp /tmp/profile/kernels.txt "$OUT/profile-decode-$batch.txt"
done
