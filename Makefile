# `make help` lists the targets. Every target sets up .venv first; the second time that costs nothing.
SHELL := /usr/bin/env bash
READY := .venv/.updraft-ready
BIN := .venv/bin
SEED ?= $(shell date +%s)
TESTS ?=
QUICK_TESTS := tests/unit tests/sim tests/contract
BENCH ?= throughput

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: $(READY) ## create .venv with everything in it (PYTHON=... chooses the interpreter)

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	@scripts/setup.sh

demo: $(READY) ## a small streaming job on embedded Spark, about 90 s
	@$(BIN)/updraft demo

test: $(READY) ## all tests (TESTS=path, SEED=n, ARGS='pytest options')
ifeq ($(TESTS),)
	@$(MAKE) --no-print-directory test TESTS='$(QUICK_TESTS) -n 2' SEED=$(SEED)
	@$(MAKE) --no-print-directory test TESTS=tests/spark SEED=$(SEED)
else
	@UPDRAFT_SEED=$(SEED) $(BIN)/pytest --hypothesis-seed=$(SEED) $(TESTS) $(ARGS) </dev/null || { code=$$?; \
	  echo "tests failed with seed $(SEED); the same again: make test SEED=$(SEED) TESTS='$(TESTS)'" >&2; \
	  echo "only what failed: make test SEED=$(SEED) TESTS='$(TESTS)' ARGS=--last-failed" >&2; exit $$code; }
endif

check: $(READY) ## formatting, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(READY) ## format the code and apply safe lint fixes
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: $(READY) ## side by side with stock Spark (BENCH=name, ARGS=--quick)
	@$(BIN)/updraft bench $(BENCH) $(ARGS)

clean: ## remove .venv, caches and build output
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
