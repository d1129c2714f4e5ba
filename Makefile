# `make serve` runs the main job on the built-in model, `make test` the tests; both set up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The torch to install. 2.13.0 from the default index suits CPUs; on a GPU host, name another
# release with TORCH=..., or an index with TORCH_INDEX=....
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
MODEL ?= $(if $(wildcard rose/assets/nano/model.safetensors),nano,build/tiny)
HOST ?= 127.0.0.1
PORT ?= 8000
STAMP := $(VENV)/.installed

.PHONY: setup serve test check bench format clean
setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable '.[engine,dev]'
	touch $@

build/tiny/config.json: tools/make_tiny_checkpoint.py $(STAMP)
	$(BIN)/python tools/make_tiny_checkpoint.py build/tiny

serve: $(STAMP) $(if $(filter build/tiny,$(MODEL)),build/tiny/config.json)
	exec $(BIN)/rose serve $(MODEL) --host $(HOST) --port $(PORT)

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python bench/engine_step.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf build .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
