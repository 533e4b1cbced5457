# duckrun-dagster: what there is to run. `make` alone lists it.
# Works with GNU make on Debian, other Linux and macOS (make 3.81 too).

SHELL := /bin/bash
.DEFAULT_GOAL := help

# The Python of .venv when it is made; without one, the newest of 3.11, 3.12 and 3.13 on this machine (tools/pythons.sh).
PYTHON ?=
VENV   := .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
STAMP  := $(VENV)/.setup-done

# Many steps start Python anew. Where the environment forbids bytecode, each of them would compile 300 modules.
export PYTHONDONTWRITEBYTECODE :=
# Dagster starts `dbt`, and Spark its Python workers, by name.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# The Java that setup chose; read when a recipe runs, as setup may just have written it.
WITH_JAVA = JAVA_HOME="$$(cat $(VENV)/java_home)"
# The seed of `make test`: the same cases in each run (SEED=7 takes others; the long suites have DUCKRUN_TEST_SEED).
SEED ?= 1
# How many processes run the tests for every day: one more than two cores, as each waits a third of its time. All that needs
# Spark shares one of them, and so one Spark.
WORKERS ?= 3
# The engine, the lake's format and the writer of the example.
EXAMPLE = $(if $(ENGINE),--engine $(ENGINE)) $(if $(FORMAT),--format $(FORMAT)) $(if $(WRITER),--writer $(WRITER)) $(if $(NAMES),--names $(NAMES))
# What pytest leaves to test-ci.
LONG := kills or branches or conformance or differential or turns or changes or cluster or ui or slow or matrix or answers or lives

.PHONY: help setup demo demo-next ui images test test-ci test-all smoke coverage conformance soak day release lint format types docs bench lock clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | awk -F'|' '{printf "  %-12s%s\n", $$1, $$2}'

setup: $(STAMP) ## Python packages, Java, Spark's jars of Delta and S3 (done once, and again when the lock changes)

$(STAMP): requirements.lock pyproject.toml tools/setup.sh tools/setup_java.py tools/fetch_jars.py adapter/duckrun/engines/spark/process/jars.py
	@PYTHON="$(PYTHON)" bash tools/setup.sh

demo: $(STAMP) ## the example: January to November 2013 through Spark, dbt and Python (ENGINE=spark: all by Spark; FORMAT=ducklake; WRITER=delta_rs; NAMES=spark), then what was made
	@$(WITH_JAVA) $(PY) -m example_project $(EXAMPLE) demo

demo-next: $(STAMP) ## December arrives, and late corrections of November: only what changed is touched
	@$(WITH_JAVA) $(PY) -m example_project $(EXAMPLE) demo-next

ui: $(STAMP) ## dagster dev on the example's graph
	@$(WITH_JAVA) $(PY) -m example_project $(EXAMPLE) ui

images: $(STAMP) ## README's pictures, from the page of `make ui` (after `make demo`; needs Chromium)
	@$(WITH_JAVA) $(PY) tools/screenshots.py docs/images

test: $(STAMP) ## the tests for every day, the same cases each time (ARGS="-k merge" narrows, SEED=7 takes other cases)
	@DUCKRUN_TEST_SEED=$(SEED) $(WITH_JAVA) $(PY) -m pytest -n $(WORKERS) --dist loadgroup --durations=10 -m "not ($(LONG))" $(ARGS)

test-ci: $(STAMP) ## the long suites, each within its budget (SUITES="kills ui" narrows)
	@$(WITH_JAVA) $(PY) tools/suites.py $(SUITES)

test-all: $(STAMP) ## every case of every suite, also those that a run draws only a part of: hours
	@DUCKRUN_TEST_ALL=1 $(WITH_JAVA) $(PY) -m pytest -n $(WORKERS) --dist loadgroup --durations=10 -m "not ($(LONG))" $(ARGS)
	@DUCKRUN_TEST_ALL=1 $(WITH_JAVA) $(PY) tools/suites.py $(SUITES)

smoke: $(STAMP) ## a few tests in a new environment (OTHER=python3.13 is its Python, VERSIONS=lowest or newest those of the dependencies)
	@$(WITH_JAVA) $(PY) tools/smoke.py $(if $(OTHER),--python $(OTHER)) $(if $(VERSIONS),--versions $(VERSIONS)) $(ARGS)

# The floor is what the tests of the embedded engine cover alone; code in processes that a test starts is not counted.
coverage: $(STAMP) ## make test with the lines that it covers, in htmlcov/; fails below the floor
	@DUCKRUN_TEST_SEED=$(SEED) $(WITH_JAVA) $(PY) -m pytest -n $(WORKERS) --dist loadgroup -m "not ($(LONG))" --cov --cov-report=term --cov-report=html $(ARGS)

release: $(STAMP) ## the release of TAG up to the upload: its changelog, packages in dist/, and the wheel in a clean environment
	@$(PY) tools/release.py check $(TAG)
	@$(PY) tools/release.py build
	@.ci/run wheel-smoke

conformance: $(STAMP) ## dbt's own suite for adapters (ENGINE=spark), and its table in docs/conformance.md
	@$(WITH_JAVA) $(PY) tools/conformance.py $(or $(ENGINE),duckdb) $(ARGS)

soak: $(STAMP) ## the long suites with full counts: hours
	@DUCKRUN_SOAK=1 $(WITH_JAVA) $(PY) tools/suites.py $(SUITES)

day: $(STAMP) ## an hour of the example under Dagster's daemon, with faults (WORK=folder, MINUTES=20): each table beside its recompute
	@$(WITH_JAVA) $(PY) -m tools.day --minutes $(or $(MINUTES),60) --work $(or $(WORK),$$(mktemp -d))

lint: $(STAMP) ## ruff, which room may import which, and how plainly docstrings are written
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache
	@$(PY) tools/prose.py

format: $(STAMP) ## ruff's formatter and its safe fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(STAMP) ## mypy
	@$(BIN)/mypy adapter/duckrun adapter/dbt duckrun_dagster example_project tools tests

docs: $(STAMP) ## docs/ as a site in site/, with search and an API reference; a dead link or an old picture is an error
	@$(PY) tools/screenshots.py --check docs/images
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "docs: site/index.html"

bench: $(STAMP) ## ours beside what else there is, into docs/benchmarks.md: hours (ARGS="--jobs write --scale 1" narrows)
	@$(WITH_JAVA) $(PY) -m benchmarks $(ARGS)

# One lock for every supported Python and system, by markers. It holds names and versions only: no index, no address. Present
# versions are kept; `make lock LOCK_ARGS=--upgrade` takes new ones.
lock: ## requirements.lock from pyproject.toml
	@test -x $(BIN)/uv || { PYTHON="$(PYTHON)" bash tools/setup.sh environment && $(PY) -m pip install --quiet uv; }
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-emit-index-url --no-emit-find-links --all-extras $(LOCK_ARGS) pyproject.toml -o requirements.lock

clean: ## what the example, the tests and the builds left (the environment stays)
	@rm -rf example_project/.lake example_project/.landing example_project/.dagster example_project/.dagster-* example_project/.spark example_project/.ducklake example_project/.spark_ducklake example_project/.delta_rs example_project/.names example_project/report example_project/dbt/target example_project/dbt/logs
	@rm -rf dist build site htmlcov .coverage .benchmarks spark-warehouse metastore_db derby.log .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
