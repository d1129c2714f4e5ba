#!/usr/bin/env bash
# About 2 minutes: `rose serve` as users run it, under load over HTTP. MODEL, default gpt-oss-120b;
# DURATION, seconds of each load, default 20.
#
# Wheels in build/serve_whl (fastapi, uvicorn, httptools, pyzmq, llguidance and what they need) are
# installed where the machine lacks them.
. tools/gpu/env.sh
if ls build/serve_whl/*.whl >/dev/null 2>&1; then
  python3 -m pip install -q --no-index --no-deps --upgrade --target /tmp/serve build/serve_whl/*.whl
  export PYTHONPATH=$PYTHONPATH:/tmp/serve
fi
get() {
  python3 -c "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode())" "$1"
}
model=${MODEL:-gpt-oss-120b} port=${PORT:-8123}
python3 -m rose serve "$model" --load-format dummy --quantization mxfp4 --port "$port" \
  >"$OUT/server.log" 2>&1 &
server=$!
for _ in $(seq 90); do
  get "http://127.0.0.1:$port/health" >/dev/null 2>&1 && break
  kill -0 $server 2>/dev/null || { tail -n 5 "$OUT/server.log"; exit 1; }
  sleep 1
done
TAIL=30 step "1024 in, 128 out" 100 python3 -m rose bench serve "http://127.0.0.1:$port" \
  --token-ids --concurrency 1,16,64 --requests 192 --duration "${DURATION:-20}" --input 1024 --output 128 \
  --warmup 4 --seed 1 --workers 2 --out "$OUT/serve.json"
get "http://127.0.0.1:$port/metrics" >"$OUT/metrics.txt"
kill -INT $server
wait $server
echo "server's exit status $?"
tail -n 5 "$OUT/server.log"
