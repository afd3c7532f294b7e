# Everything from a fresh clone: `make test` and `make demo` set up .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin
THREADS ?= 1

.PHONY: demo test slow lint bench docs clean
.DEFAULT_GOAL := test

.venv/ready: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  (echo "crosslift needs Python 3.11 or newer; say which: make PYTHON=python3.11" && exit 1)
	@$(BIN)/pip install -q -c constraints.txt "torch==2.13.0"
	@$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	@touch $@
	@echo "  ✓ environment ready (.venv)"

demo: .venv/ready
	@$(BIN)/crosslift demo

test: .venv/ready
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

slow: .venv/ready
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n 2 --dist worksteal -m "slow and not gpu and not browser" $(ARGS)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# CROSSLIFT_DATA must name the data folder; MODEL an encoder (default: mini-x).
bench: .venv/ready
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

# The site as plain files that open without a network: build/site/index.html.
docs: .venv/ready
	@$(BIN)/pip install -q -c constraints.txt -e ".[docs]"
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache
