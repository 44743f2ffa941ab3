# Needs only make and python3 (3.11 or newer, with its venv module). Everything lands in .venv; nothing else is touched.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check compare quick real federation claims reproduce bench mutants package docs flower siege lint types \
  format clean

PYTHON ?= python3
ITEM ?=
REFERENCE ?=
ROOM ?=
SEED ?=
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
# The stamps live inside .venv, so that removing .venv also forgets them.
LIGHT := $(VENV)/.light
FULL := $(VENV)/.full
# The lowest version of Flower that pyproject.toml allows, in an environment of its own: it needs older packages.
LOWEST := 1.30.0
FLOWER := $(VENV)/flower-$(LOWEST)
CORE := numpy scipy scikit-learn numba llvmlite safetensors array-api-compat lazy-loader threadpoolctl dp-accounting msgspec
PIP_INSTALL := $(RUN) -m pip --disable-pip-version-check --no-input install --quiet --constraint constraints.txt
# Extras that the tests use; torch (the extra "deep") is a step of its own, see $(FULL).
EXTRAS := federation,flower,mpi,dask,privacy,plots,data,cells,excel,tune,report,tensorboard

# Flower: no telemetry, no look for updates. Figures go to files. Two parallel test processes share two cores.
export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export MPLBACKEND := Agg
# Tests start hundreds of processes: where bytecode may not be kept, each compiles the house anew, for minutes in all.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m pytest -q

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

demo: $(LIGHT) ## see it work: digits split by class among ten owners; writes demo-out/
	$(BIN)/fedfactor demo

check: $(FULL) ## under two minutes: lint, types, unit and contract tests, doctests, side by side
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=line lint types quick

quick: $(FULL)
	$(PYTEST) -n 2 -m "not slow and not integration" tests src

compare: $(FULL) ## compare with an earlier commit, bit by bit: algorithms, engines, privacy, files; REFERENCE=commit
	$(RUN) -m tests.comparison $(if $(REFERENCE),--reference $(REFERENCE))

test: $(FULL) ## everything, in small counts: all tests, doctests, docs; some twenty minutes
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line lint types
	$(PYTEST) -n 2 -m "not integration" tests src
	@$(MAKE) --no-print-directory --jobs=2 real docs

# Real Flower deployments and thousands of connections need the machine for themselves: `make flower` and `make siege`.
ALONE := tests/flower/test_deployment.py tests/network/test_https_siege.py

# Real processes wait for each other much of the time: three such tests keep two cores busy.
real: $(FULL)
	$(PYTEST) -n 3 --dist loadfile -m integration $(ALONE:%=--ignore=%) tests

federation: $(FULL) ## only the tests with real servers and parties on this machine, Flower's among them
	$(PYTEST) -m federation tests

flower: $(FULL) $(FLOWER)/.done ## the tests with Flower's own processes, at the lowest and the highest version
	FEDFACTOR_FLOWERS=$(CURDIR)/$(FLOWER):$(CURDIR)/$(VENV) $(PYTEST) tests/flower

siege: $(FULL) ## a server under 2,000 connections; nothing else may run meanwhile
	$(PYTEST) tests/network/test_https_siege.py

claims: $(FULL) ## every claim at full count, resumable; ITEM=name for one; writes evidence.json
	$(RUN) -m claims $(ITEM)

reproduce: $(FULL) ## the papers' experiments in small: tables and figures in reproduce-out/
	$(RUN) -m papers run --quick

bench: $(FULL) ## time the kernels, count bytes and rounds
	$(RUN) -m benchmarks

mutants: $(FULL) ## put 200 small faults into the source: do fast tests notice? ROOM=name for one room, SEED=1 for others
	$(RUN) -m mutants $(if $(ROOM),--room $(ROOM)) $(if $(SEED),--seed $(SEED))

package: $(FULL) ## build wheel and sdist, lock file and SBOM into dist/; try each extra in a clean environment
	$(RUN) -m tests.package.try_package

docs: $(FULL) ## build the pages, offline, warnings are errors: docs/_build/html/index.html
	$(RUN) -m sphinx -W --keep-going -q -b html docs docs/_build/html

lint: $(FULL) ## ruff, codespell, import rules, pyproject
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports --no-cache
	$(BIN)/validate-pyproject pyproject.toml

types: $(FULL) ## pyright: strict everywhere except kernels
	$(BIN)/pyright --pythonpath $(RUN)

format: $(FULL) ## write the page of claims, let ruff write the layout
	$(RUN) -m docs._ext.claims
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what make made: .venv, caches, built pages, demo-out (evidence.json stays)
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache docs/_build docs/gallery docs/api/generated \
	  demo-out benchmarks/out
	find src tests claims papers benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "fedfactor needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "python3 cannot make a virtual environment; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }

$(LIGHT): pyproject.toml constraints.txt | $(RUN)
	$(PIP_INSTALL) --upgrade pip
	$(PIP_INSTALL) --editable ".[plots]"
	@touch $@

$(FLOWER)/.done: constraints.txt | $(RUN)
	$(RUN) -m venv $(FLOWER)
	grep -E "^($$(echo $(CORE) | tr ' ' '|'))==" constraints.txt > $(FLOWER)/constraints.txt
	$(FLOWER)/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
	  --constraint $(FLOWER)/constraints.txt 'flwr[simulation]==$(LOWEST)' $(CORE)
	@touch $@

$(FULL): $(LIGHT)
	$(PIP_INSTALL) --editable ".[$(EXTRAS)]" --group dev
	@$(PIP_INSTALL) --group torch || { \
	  echo "--- The CPU build of torch was not found, so tests that need torch will be skipped."; \
	  echo "--- To have them: PIP_FIND_LINKS=<folder or page with that wheel> make test"; }
	@touch $@
