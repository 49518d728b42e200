# Every target does its own set-up; repeated, it starts at once.
.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
STAMP := .venv/errata-setup
ARGS ?=
NAME ?= ingest
SCALE ?= small
OUT ?= bench-out
export PATH := $(CURDIR)/$(BIN):$(PATH)
# What is compiled is kept, whatever the shell says: every process would otherwise compile Airflow and Spark again.
unexport PYTHONDONTWRITEBYTECODE
# A recipe's programs may call make themselves, as tests do: that one starts afresh, without this one's flags and variables.
unexport MAKEFLAGS MFLAGS MAKEOVERRIDES ARGS NAME SCALE OUT
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.tools/compiled

.PHONY: help setup demo test test-long chaos outages lint airflow bench docs clean lock

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target words; do printf '%-14s %s\n' "$$target" "$$words"; done

setup: $(STAMP)  ## make .venv from requirements.lock (no root, no Docker)

$(STAMP): pyproject.toml requirements.lock .ci/setup .ci/setup.py
	@.ci/setup

demo: $(STAMP)  ## see queries kept answered over a stream, and the past corrected
	@$(BIN)/errata demo $(ARGS)

test: $(STAMP)  ## run the tests (ARGS='tests/engine -x' for some of them)
	@unset MAKELEVEL; $(BIN)/python .ci/test.py $(ARGS)

test-long: $(STAMP)  ## run all tests, also the long ones, property tests on 2,000 examples each; hours
	@unset MAKELEVEL; $(BIN)/python .ci/test.py --long $(ARGS)

chaos: $(STAMP)  ## ten minutes of kills, four processes at work, the oracle at every quiet point (ARGS='--minutes 2 --seed 7')
	@PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

outages: $(STAMP)  ## PostgreSQL away for a minute at twenty moments of what Airflow does; about an hour
	@$(BIN)/pytest tests/airflow/live/test_outages.py -k any_moment --long $(ARGS)

lint: $(STAMP)  ## style, types and the walls between rooms
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

airflow: $(STAMP)  ## run Airflow here with an example that moves, until Ctrl-C (PORT=8080, ERRATA_PROJECT=…)
	@exec $(BIN)/python -m deploy.here $(ARGS)

bench: $(STAMP)  ## measure: make bench NAME=ingest SCALE=small OUT=folder
	@$(BIN)/errata bench $(NAME) --scale $(SCALE) --out $(OUT)

docs: $(STAMP)  ## check that links, commands and options named in the docs exist
	@$(BIN)/python docs/check.py

clean:  ## remove what was made here, the virtual environment too
	rm -rf .venv .tools .airflow .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache \
		bench-out build dist spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

lock: $(STAMP)  ## bring requirements.lock up to pyproject.toml (ARGS=--upgrade: with the newest versions of all)
	@.ci/setup --lock $(ARGS)
