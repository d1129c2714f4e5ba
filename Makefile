# `make serve` runs the main job on the built-in model, `make test` the tests; both set up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Another torch than the default: TORCH=torch==2.11.0, or TORCH_INDEX=..., the index of its builds.
# On Linux the default index has CUDA builds for x86-64, which run on a CPU too but take some GB;
# builds for the CPU alone are at TORCH_INDEX=https://download.pytorch.org/whl/cpu.
TORCH ?=
TORCH_INDEX ?=
MODEL ?= nano
HOST ?= 127.0.0.1
PORT ?= 8000
STAMP := $(VENV)/.installed
TORCH_STAMP := $(VENV)/.torch
TORCH_CHOICE := $(strip $(TORCH) $(TORCH_INDEX))

.PHONY: setup serve test check bench format clean FORCE
setup: $(STAMP)

# The torch that is there stays until another one is asked for; its stamp holds the last choice.
ifneq ($(TORCH_CHOICE),)
ifneq ($(TORCH_CHOICE),$(shell cat $(TORCH_STAMP) 2>/dev/null))
$(TORCH_STAMP): FORCE
endif
endif
$(TORCH_STAMP):
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(if $(TORCH_CHOICE),--force-reinstall) \
		$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(or $(TORCH),torch==2.13.0)"
	echo "$(TORCH_CHOICE)" > $@

$(STAMP): pyproject.toml $(TORCH_STAMP)
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
