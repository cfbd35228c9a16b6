# The two commands a newcomer needs are `make demo` and `make test`. Each sets itself up.
# The first of these that runs (a version manager may list names that do not).
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do $$p -c '' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo demo-data test soak bench check format clean
.DEFAULT_GOAL := help

help: ## Show what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@$(or $(PYTHON),python3) -c 'import sys; v=sys.version_info[:2]; sys.exit(0 if (3,11)<=v<(3,13) else "headrace needs Python 3.11 or 3.12, this is %d.%d. Install one and run: make PYTHON=/path/to/python3.12 demo" % v)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(STAMP)

setup: $(STAMP) ## Create the virtual environment and install everything into it

demo: setup ## Play agent traffic through the whole pipeline, then let a model learn from it
	$(BIN)/headrace demo --then-learn

demo-data: setup ## The first part of the demo alone: traffic through the pipeline
	$(BIN)/headrace demo

test: setup ## Run every test that needs no accelerator
	$(BIN)/python -m pytest

soak: setup ## Run what is long: more seeds, more kills
	$(BIN)/python -m pytest -m "soak or agents"
	$(BIN)/python -m tests.soak.matrix --seeds 1,2,3,4,5 --kills 2 --steps 20000

bench: setup ## Measure, print the figures and write them into docs (25 minutes, then learning: an hour)
	$(BIN)/python -m infra.bench --write docs/benchmarks.md
	$(BIN)/python -m infra.bench.redaction --write docs/redaction.md
	$(BIN)/python -m infra.bench.weights
	$(BIN)/python -m infra.bench.updates
	$(BIN)/python -m infra.bench training --write docs/training.md
	$(BIN)/python -m infra.bench learning --seeds 1,2,3,4,5 --write docs/training.md

check: setup ## Format, lint, types, import contracts, size gates
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.architecture.size_gates

format: setup ## Rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
