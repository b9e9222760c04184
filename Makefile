# Two commands set everything up: `make demo` runs the main job, `make test` the tests.
# Each makes (or reuses) a virtual environment in .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-changed test-newest test-cluster quick soak golden lint types contracts docs site check bench clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/.ready: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[examples,test,dev]'
	@touch $@

demo: $(BIN)/.ready ## Train two networks on one device and sharded over eight, show the plan, compare (under 90 s)
	$(BIN)/sporax run --local_devices 8 examples/01-train-digits/train.py

test: $(BIN)/.ready ## Run the tests: every behaviour, one or a few of its variants (10 to 14 minutes on 2 cores)
	$(BIN)/python -m pytest -n auto -m "not full and not soak" --costs --durations 10

test-all: $(BIN)/.ready ## Run all variants, too: every kind of end on several machines, long searches, pages and examples (about 30 minutes)
	$(BIN)/python -m pytest -n auto -m "not soak" --durations 10

test-changed: $(BIN)/.ready ## Run what `make test` leaves out, of the packages that changed since the last release and of those above them
	$(BIN)/python -m pytest -n auto -m "full and not soak" --durations 10 $$($(BIN)/python tools/changed_tests.py) || test $$? -eq 5  # 5: none has variants

quick: $(BIN)/.ready ## Run the tests that take no more than a few seconds and are no variants
	$(BIN)/python -m pytest -n auto -m "not slow and not full and not soak"

NEWEST := tests/planner/rules tests/planner/propagation tests/planner/loops tests/report/test_plan_warnings.py \
	tests/lowering/pipeline tests/lowering/test_jax_versions.py tests/lowering/execute/test_islands.py \
	tests/lowering/execute/test_local_equations.py \
	tests/mindspore/ops/_core tests/runtime/process/test_recording.py tests/runtime/planned/test_half_memory.py
NEWEST_JOBS := tests/docs/test_first_page.py tests/mindspore/communication/test_collectives.py

$(BIN)/.tests-ready: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[test]'
	@touch $@

test-newest: $(BIN)/.tests-ready ## Run what a new Python or JAX breaks first: VENV and PYTHON say where (5 minutes of CPU time)
	@$(BIN)/python -c "import jax, platform; print('Python', platform.python_version(), 'with JAX', jax.__version__)"
	$(BIN)/python -m pytest -n auto -m "not slow and not soak" $(NEWEST)
	$(BIN)/python -m pytest -n auto -m "not soak" $(NEWEST_JOBS)

soak: $(BIN)/.ready ## An hour of kills, changed files, lost networks and repeated runs, from a seed
	$(BIN)/python tools/soak.py kills files fuzz jobs servers points removals network steps collectives control || test $$? -eq 2  # 2: no machines can be had here (root, Linux)
	$(BIN)/python tools/soak.py memory || test $$? -eq 1  # 1: fewer than 95 % are predicted within 10 %
	$(BIN)/python -m pytest -n auto -m "hypothesis and not soak" --hypothesis-profile random
	$(BIN)/python -m pytest -n 0 -m soak || test $$? -eq 5  # 5: no test has this mark

CONTROL_PLANE ?= $(HOME)/.cache/sporax/control-plane

test-cluster: $(BIN)/.ready ## Build a Kubernetes control plane (once, 10 minutes) and run the operator's tests on it (root)
	tools/build_control_plane.sh $(CONTROL_PLANE)
	tools/build_definition_checker.sh $(CONTROL_PLANE)
	SPORAX_KUBE_ASSETS=$(CONTROL_PLANE)/bin $(BIN)/python -m pytest -n 0 -m cluster tests/k8s

golden: $(BIN)/.ready ## Write the texts of compiled steps again, after a change that is meant to change collectives
	$(BIN)/python -m pytest -n 0 --renew tests/corpus/test_compiled_steps.py
	git diff --stat tests/corpus/compiled_steps

lint: $(BIN)/.ready ## Style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(BIN)/.ready ## Write the type stubs, and check strict types
	$(BIN)/python tools/type_stubs/make_type_stubs.py
	$(BIN)/mypy

contracts: $(BIN)/.ready ## A layer imports only layers below it
	$(BIN)/lint-imports

docs: $(BIN)/.ready ## Write the generated pages of docs/
	$(BIN)/python tools/make_operator_docs.py
	$(BIN)/python tools/make_api_docs.py
	$(BIN)/python tools/make_coverage_docs.py
	$(BIN)/python tools/make_jax_coverage_docs.py
	$(BIN)/python tools/make_rule_docs.py
	$(BIN)/sporax k8s manifests --output deploy --packages

$(BIN)/.site-ready: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# Sporax itself where it is not there yet: installing it again would pull it away from what `make --jobs` runs at the same time.
	$(BIN)/python -c 'import sporax' 2>/dev/null || $(BIN)/pip install --quiet --editable .
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' \
		| $(BIN)/pip install --quiet --requirement /dev/stdin
	@touch $@

site: $(BIN)/.site-ready ## Build the site of the documentation in build/site; warnings are errors
	$(BIN)/python tools/make_site.py

check: lint types contracts test ## Everything a change must pass

bench: $(BIN)/.ready ## What the facade costs over hand-written JAX
	$(BIN)/python benchmarks/facade_overhead.py

clean: ## Remove the virtual environment and what was written by examples and tools
	rm -rf $(VENV) build outputs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
