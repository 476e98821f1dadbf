# Every target makes .venv first and by itself. Python 3.11 or newer and make are all it needs.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help up test lint fmt bench lock clean env

BIN := .venv/bin
ARGS ?=

unexport PYTHONHOME PYTHONPATH

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  ARGS="…" goes to the command behind the target: make test ARGS="tests/unit -x"'
	@echo '  PYTHON=… names the Python that .venv is made with'

up: env ## start Windlass on this machine, with its own PostgreSQL
	$(BIN)/windlass up $(ARGS)

# Bytecode is kept, whatever the environment says: the tests start some hundred processes, and each would compile us anew.
test: export PYTHONDONTWRITEBYTECODE :=
test: env ## run the tests
	@tools/chromium
	$(BIN)/python -m pytest -n 3 --no-loadscope-reorder $(ARGS)

lint: env ## check style, types, imports and the lock file
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/check_lock.py

fmt: env ## fix what can be fixed, and format
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

bench: env ## measure, and print the rates side by side
	$(BIN)/python -m bench $(ARGS)

lock: ## write requirements.lock anew (ARGS=--upgrade moves versions)
	tools/lock $(ARGS)

clean: ## remove caches and build output; keep .venv and data
	rm -rf .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +

env:
	@tools/venv
