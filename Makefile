# Every target makes .venv first and by itself. Python 3.11 or newer and make are all it needs: Node.js, for the
# dashboard, is fetched where there is none.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help up test lint fmt bench lock web web-types clean env dashboard

BIN := .venv/bin
ARGS ?=

unexport PYTHONHOME PYTHONPATH

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  ARGS="…" goes to the command behind the target: make test ARGS="tests/unit -x"'
	@echo '  PYTHON=… names the Python that .venv is made with'

up: env dashboard ## start Windlass on this machine, with its own PostgreSQL
	$(BIN)/windlass up $(ARGS)

# The tests of the dashboard run with all the others, not when some are named.
# Bytecode is kept, whatever the environment says: the tests start some hundred processes, and each would compile us anew.
test: export PYTHONDONTWRITEBYTECODE :=
test: env dashboard ## run the tests
	@tools/chromium
	$(if $(ARGS),,tools/node vitest run || [ $$? = 69 ])
	$(BIN)/python -m pytest -n 3 --no-loadscope-reorder $(ARGS)

lint: env ## check style, types, imports and the lock file
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/check_lock.py
	tools/node biome check
	tools/node tsc --noEmit

fmt: env ## fix what can be fixed, and format
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	tools/node biome check --write

bench: env ## measure, and print the rates side by side
	$(BIN)/python -m bench $(ARGS)

lock: ## write requirements.lock anew (ARGS=--upgrade moves versions)
	tools/lock $(ARGS)

web: env ## build the dashboard
	tools/web

web-types: env ## write web/src/api/schema.ts anew from the description of the API
	$(BIN)/python tools/openapi_types.py

clean: ## remove caches and build output; keep .venv, web/node_modules and data
	rm -rf .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/windlass/api/ui
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +

env:
	@tools/venv

# 69: Node.js or its packages cannot be fetched. The rest works without the dashboard, and /ui says that it is not built.
dashboard: env
	@tools/web || [ $$? = 69 ]
