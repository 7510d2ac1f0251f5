# batonpass: `make` alone lists the targets.
# `python3`, or the distribution's where that one was built without --enable-optimizations, as pyenv does by default:
# a drain takes a seventh to a quarter more processor time then (docs/history/bench-transfers.md). PYTHON=... overrides.
PYTHON ?= $(shell \
  usable='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; \
  quick='import sys, sysconfig as s; sys.exit("--enable-optimizations" not in (s.get_config_var("CONFIG_ARGS") or ""))'; \
  if python3 -c "$$usable" 2>/dev/null && python3 -c "$$quick"; then echo python3; \
  elif /usr/bin/python3 -c "$$usable" 2>/dev/null; then echo /usr/bin/python3; else echo python3; fi)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN_DIR ?= run
FUZZ_SECONDS ?= 600
LOOK_SECONDS ?= 6
MUTANTS ?= 64
SEED ?= 1
MINUTES ?= 60
SINCE ?=
QUICK ?=
# What uses libraries in every way: HTTP and WebSockets, CBOR, keys and tokens, patterns, Raft, tables, plots.
LOWEST ?= tests/actors/http tests/actors/link tests/authority/wire tests/crypto tests/homeserver/rest tests/tree/data \
  tests/tree/machine tests/tree/member tests/tree/store tests/scenarios/cli tests/client tests/simserver/players

# Where the environment forbids it, each of the hundreds of processes that the tests start would compile all sources.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test deep lint types layers ready unit fuzz atheris ecs guards roots mutants sample contract site lowest clean

help: ## list the targets
	@echo "batonpass"
	@echo
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(STAMP) ## make the virtual environment (.venv) and install batonpass into it

$(STAMP): pyproject.toml
	@echo "==> creating $(VENV) with $$($(PYTHON) --version), $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "batonpass needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@$(PYTHON) -m venv $(VENV) || { echo "could not create a virtual environment: on Debian, install python3-venv"; exit 1; }
	@echo "==> installing batonpass and its development tools (about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.2' 'setuptools>=78.1.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

run: $(STAMP) ## start a local cluster, run the transfer cases on it, show the report
	@echo "==> running the transfer cases on a local cluster (report in $(RUN_DIR)/)"
	@mkdir -p $(RUN_DIR)
	@$(BIN)/baton run cases --json $(RUN_DIR)/cases.json --html $(RUN_DIR)/cases.html

test: ## run every check: ruff, mypy strict, import-linter, pytest
	@$(MAKE) --no-print-directory --output-sync=target --jobs=2 types layers lint ready
	@$(MAKE) --no-print-directory unit

deep: ## `make test` with all examples and mixes, four times as many: before a release, or by night
	@HYPOTHESIS_PROFILE=deep $(MAKE) --no-print-directory test

lint: $(STAMP) ## ruff: lint and formatting
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP) ## mypy strict
	@echo "==> mypy"
	@$(BIN)/mypy

layers: $(STAMP) ## import-linter: layers, pure cores, the PySyncObj fence
	@echo "==> import-linter"
	@$(BIN)/lint-imports --no-cache

unit: $(STAMP) ## pytest, and beside it LOOK_SECONDS=6 of coverage-guided fuzzing where atheris can be installed
	@$(MAKE) --no-print-directory atheris || true
	@$(MAKE) --no-print-directory ecs || true
	@echo "==> pytest, and $(LOOK_SECONDS) s of fuzzing beside it"
	@log=$$(mktemp); fuzzer=; status=0; \
	if $(BIN)/python -c 'import atheris' 2>/dev/null; then \
	  nice -n 5 timeout 600 $(BIN)/python -m tests.fuzz.run --seconds $(LOOK_SECONDS) --look-only >$$log 2>&1 & fuzzer=$$!; \
	fi; \
	$(BIN)/pytest -n 8 --dist worksteal || status=$$?; \
	echo "==> fuzzing"; \
	if [ -n "$$fuzzer" ]; then \
	  looked=0; wait $$fuzzer || looked=$$?; cat $$log; \
	  if [ $$looked = 124 ]; then echo "!!! NOT FUZZED as long as it should be: not finished in 10 minutes"; \
	  elif [ $$looked != 0 ]; then status=1; fi; \
	else \
	  echo "!!! NOT FUZZED: atheris cannot be installed for $$($(BIN)/python --version) here. Only hypothesis and the corpus have run."; \
	fi; \
	rm -f $$log; exit $$status

# While mypy keeps one core busy: what the workers of pytest would each compile for themselves.
ready: $(STAMP)
	@$(BIN)/pytest --collect-only --quiet >/dev/null || true
	@$(MAKE) --no-print-directory atheris || true

atheris: $(STAMP)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["fuzz"])')

# What scenes are compared with, where there are node and npm.
ecs: $(STAMP)
	@$(BIN)/python -m tests.simserver.sync.scene.ecs

fuzz: atheris ## coverage-guided fuzzing of all that reads hostile bytes (FUZZ_SECONDS=600 in all); adds to the corpus
	@echo "==> fuzzing for $(FUZZ_SECONDS) s"
	@$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS)

guards: $(STAMP) ## remove each guard of safety, one by one: some test has to fail each time
	$(BIN)/python -m tests.guards

roots: $(STAMP) ## take each line of the composition roots out, one by one: some test in process has to fail each time
	$(BIN)/python -m tests.guards.roots

mutants: guards roots sample ## both, and a seeded sample of mutants: MUTANTS=64 of the cores of safety, SEED=1, MINUTES=60, SINCE=COMMIT

sample: $(STAMP)
	@$(BIN)/python -c 'import cosmic_ray' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["mutants"])')
	$(BIN)/python -m tests.guards.sample --count $(MUTANTS) --seed $(SEED) --minutes $(MINUTES) --since "$(SINCE)"

contract: $(STAMP) ## the REST API against its own document, by schemathesis: SEED=1, QUICK=--quick for a tenth of it
	@$(BIN)/python -c 'import schemathesis.cli' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["contract"])')
	$(BIN)/python -m tests.contract --seed $(SEED) $(QUICK)

site: $(STAMP) ## the documentation as a site in build/site, for any web server or none; dangling links and foreign hosts fail
	@echo "==> the documentation site"
	@$(BIN)/python -m tests.docs.site

lowest: $(STAMP) ## the tests that use libraries most, with the lowest version of each that pyproject.toml allows
	@$(PYTHON) -m venv $(VENV)/lowest
	@$(BIN)/python -m tests.lowest_versions > $(VENV)/lowest/lowest.txt
	@$(VENV)/lowest/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(VENV)/lowest/lowest.txt
	@$(VENV)/lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(VENV)/lowest/bin/python -m pytest -q -n 2 -p no:cacheprovider $(LOWEST)

clean: ## remove the environment and everything generated
	rm -rf $(VENV) $(RUN_DIR) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
