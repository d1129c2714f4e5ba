# Sourced by the other scripts here, from the repository's root.
#
# Each step is a process of its own with a time limit, and what it prints is appended to
# $OUT/log.txt: a step that crashes or hangs loses only itself. The tests want pytest-xdist.
#
# Ignored files that may help a machine without network: build/whl/msgspec*.whl, installed if it is
# missing; build/gpu/fa3.tar.xz, what the wheel of tokenspeed-fa3 holds; build/gpu/triton.tgz,
# compiled kernels from tools/gpu/prepare.sh.
OUT=${OUT:-build/gpu/out}
export OUT PYTHONUNBUFFERED=1
mkdir -p "$OUT"
if ! python3 -c "import msgspec" 2>/dev/null && ls build/whl/msgspec*.whl >/dev/null 2>&1; then
  python3 -m pip install -q --no-index --no-deps --upgrade --target /tmp/site build/whl/msgspec*.whl
fi
if [ build/gpu/fa3.tar.xz -nt /tmp/fa3 ]; then
  mkdir -p /tmp/site && tar xJf build/gpu/fa3.tar.xz -C /tmp/site && touch /tmp/fa3
fi
export PYTHONPATH=$PWD:/tmp/site
if [ build/gpu/triton.tgz -nt /tmp/triton ]; then
  tar xzf build/gpu/triton.tgz -C /tmp && touch /tmp/triton
fi
export TRITON_CACHE_DIR=/tmp/triton

# step NAME SECONDS COMMAND...: run it, show its last lines (TAIL, 12).
step() {
  local name=$1 limit=$2
  shift 2
  echo "== $name $(date +%T)"
  timeout -k 5 "$limit" "$@" >/tmp/step.log 2>&1
  echo "   exit status $? $(date +%T)"
  { echo "== $name"; cat /tmp/step.log; } >>"$OUT/log.txt"
  tail -n "${TAIL:-12}" /tmp/step.log | cut -c1-220
}

# tests SECONDS PYTEST_ARGUMENTS...
tests() {
  local limit=$1
  shift
  step "pytest $*" "$limit" python3 -m pytest -o addopts= -q -p no:cacheprovider --timeout 150 "$@"
}
