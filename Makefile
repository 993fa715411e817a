# Everything a developer runs. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
KIND := $(BIN)/python -m hack.kind
# Two is what the smallest machine has; more workers make timings worse, not tests faster.
JOBS ?= 2

TORTURE_SECONDS ?= 60

.PHONY: help setup check check-types check-layers check-lint check-format check-protos test torture e2e demo kind-demo test-gpu bench bench-packing bench-scheduler bench-order image cluster cluster-down lock protos clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/ready ## Make the virtual environment from the hashed lock file

.venv/ready: hack/requirements-dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Tessera needs Python >= 3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r hack/requirements-dev.lock
	touch $@

# The one that takes longest first.
CHECKS := check-types check-layers check-lint check-format check-protos

check: setup ## Format, lint, types, layers, generated code
	@$(MAKE) --no-print-directory --output-sync -j $(JOBS) $(CHECKS)

check-types:
	$(BIN)/mypy
check-layers:
	$(BIN)/lint-imports --no-cache
check-lint:
	$(BIN)/ruff check .
check-format:
	$(BIN)/ruff format --check .
check-protos:
	$(BIN)/python hack/protos.py --check

# Unit tests alone cover the core; tracing every line makes properties and harnesses slow. One test
# after the other is given out, in the order of tests/conftest.py.
test: check ## All checks and every test that needs no cluster
	rm -rf build/coverage
	$(BIN)/coverage run -m pytest -q -n $(JOBS) tests/unit
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --include='driver/core/*' --fail-under=95
	$(BIN)/pytest -q -n $(JOBS) --maxschedchunk=1 -m "not e2e and not gpu" tests --ignore=tests/unit

torture: setup ## Random schedules of everything that can go wrong; TORTURE_SECONDS=3600 for an hour
	$(BIN)/python -m tests.crash.torture --seconds $(TORTURE_SECONDS)

cluster: setup ## Start the kind cluster with simulated GPUs (nothing happens where it is up)
	$(KIND) up

cluster-down: setup ## Take the kind cluster down; nothing stays but caches
	$(KIND) down

image: setup ## Build the image and load it into the cluster's nodes
	$(BIN)/python -m hack.image

e2e: cluster image ## End-to-end tests on the kind cluster, which stays up
	$(KIND) exec -- $(BIN)/pytest -q tests/chart
	$(KIND) exec -- bash -c 'TESSERA_TEST_KUBECONFIG=$$KUBECONFIG exec $(BIN)/pytest -q -k real tests/kube/test_contract.py tests/kube/test_fake_validation.py'
	$(KIND) exec -- $(BIN)/pytest -q -m e2e --durations=10 tests/e2e tests/kind

demo: setup ## The whole path in one process tree, no cluster needed: two simulated H100
	$(BIN)/python -m hack.demo

kind-demo: cluster image ## The same story on the kind cluster
	$(KIND) exec -- $(BIN)/python -m hack.demo.kind

test-gpu: setup ## Tests on this machine's idle GPUs: all is read, and each runs the probe
	$(BIN)/pytest -q -m gpu tests/gpu

bench: setup ## Start, prepare and memory of the plugin, beside their floors
	$(BIN)/python -m tests.bench

bench-packing: setup ## How well the order packs, beside the exact optimum and other orders (minutes)
	$(BIN)/python -m tests.bench.packing

bench-scheduler: setup ## What our slices cost kube-scheduler, on a real control plane (a quarter of an hour)
	$(BIN)/python -m tests.bench.scheduler

bench-order: setup ## Whether the order follows allocations, on a real control plane (minutes)
	$(BIN)/python -m tests.bench.order

lock: ## Resolve the dependencies anew; the lock files hold hashes and no address
	$(BIN)/pip install --quiet uv
	for extra in "" "--extra dev"; do \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url --upgrade $$extra pyproject.toml \
	    -o hack/requirements$${extra:+-dev}.lock; \
	done

protos: setup ## Generate the code of the kubelet's interfaces anew
	$(BIN)/python hack/protos.py

clean: ## Remove what was built in this folder (caches below the home folder stay)
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
