# Every target sets up what it needs: only python3 (3.11 or later), git and make have to be there.
.DEFAULT_GOAL := help
.PHONY: help setup demo test check format lint types layers unit test-slow bench docs clean

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
DEMO_SECONDS ?= 25

# Nested thread pools are what makes parallel training slow; numpy and torch read these when imported.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## Build .venv from the pins in constraints.txt

# The stamp is touched last, so an interrupted install is done again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed, $(PYTHON) is $$($(PYTHON) -V). Set PYTHON=python3.11."; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (about two minutes the first time)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup ## Train CartPole sequentially, then in parallel, and compare (about a minute)
	@$(BIN)/paceline train ppo --env CartPole-v1 --num-workers 0 --duration $(DEMO_SECONDS)s \
		--output-dir runs/demo_sequential --overwrite
	@$(BIN)/paceline train ppo --env CartPole-v1 --num-workers 2 --duration $(DEMO_SECONDS)s \
		--output-dir runs/demo_parallel --overwrite
	@$(BIN)/paceline compare runs/demo_sequential runs/demo_parallel

test: lint types layers unit ## Everything that must pass: lint, strict types, layers, the default test suite

check: test ## The same, under its other name

format: setup ## Rewrite the source in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: setup
	@$(BIN)/mypy

layers: setup
	@$(BIN)/python -m pytest -q tests/unit/test_layers.py

unit: setup
	@$(BIN)/python -m pytest -q $(PYTEST_ARGS)

test-slow: setup ## Learning tests and other long ones
	@$(BIN)/python -m pytest -q -m "slow or chaos" $(PYTEST_ARGS)

bench: setup ## Sequential against parallel on CartPole, in one run
	@$(BIN)/paceline bench --env CartPole-v1 --num-workers 2

docs: setup ## Run the code in README.md and docs/
	@$(BIN)/python -m pytest -q tests/docs $(PYTEST_ARGS)

clean: ## Remove caches (not .venv, not runs/)
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
