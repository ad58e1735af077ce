# One command each; everything happens in a virtual environment of its own.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo test check chaos-short chaos bench-test bench clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable '.[demo,pubsub-monitoring,otel]' --group dev
	$(BIN)/python -m compileall -q async_processor  # as installing does, unless it is editable
	touch $@

demo: $(VENV)/.installed  ## set up and watch the daemon do its whole job
	$(BIN)/async-processor demo

test: $(VENV)/.installed  ## set up and run every test; needs no root, skips what needs a missing server
	$(BIN)/pytest -n 5 --dist loadfile --ignore tests/chaos --ignore tests/bench  # they wait a lot

check: $(VENV)/.installed  ## what a change must pass besides the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

chaos-short: $(VENV)/.installed  ## every fault by itself, then some at random; minutes
	$(BIN)/pytest -n 3 --dist worksteal tests/chaos

chaos: $(VENV)/.installed  ## 50,000 requests and 500 kills; half an hour, more with CHAOS="--help"
	$(BIN)/python -m async_processor.testing.chaos $(CHAOS)

bench-test: $(VENV)/.installed  ## whether benchmarks measure what they say, at tiny sizes
	$(BIN)/pytest -n 3 --dist worksteal tests/bench

bench: $(VENV)/.installed  ## throughput, latency and memory, side by side in one run
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
