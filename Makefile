# Every target sets up what it needs: only python3 (3.11 or later), git and make have to be there.
.DEFAULT_GOAL := help
.PHONY: train-sequential train-parallel compare tensorboard
.PHONY: help setup setup-dev demo test check format lint types layers unit test-slow test-sb3 bench docs clean
.PHONY: bench-check bench-baseline bench-grad bench-scaling bench-learning bench-waterfall bench-ceiling bench-modes bench-lag bench-docs
.PHONY: keywords golden golden-checkpoints bench-two learning-seeds bench-trace bench-kernels bench-env-loop bench-round-trip bench-display bench-cyber-env
.PHONY: chaos soak bench-faults bench-cyber bench-cyborg test-ray test-rllib bench-ray
.PHONY: bench-defaults bench-dqn bench-replay bench-games bench-sb3 bench-vector bench-weights bench-workers bench-peers bench-solve

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.dev-installed
# pip shows what it downloads: the first installation takes minutes.
PIP := -m pip install --disable-pip-version-check -c constraints.txt
RAY_VENV := .venv-ray
RAY_STAMP := $(RAY_VENV)/.installed
PYTEST_ARGS ?=
# Test processes at once. Many tests start workers of their own: more than four gain little.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n : 4)))
# For the timed runs: hours (or 90s, 15m, 2h), the env, worker processes, where the runs and the comparison go,
# and anything else for the command, such as ARGS=--overwrite.
DURATION ?= 1.0
ENV ?= CartPole-v1
WORKERS ?= 4
SEQUENTIAL ?= runs/sequential
PARALLEL ?= runs/parallel
COMPARE_DIR ?= .
ARGS ?=
PEERS_ARGS ?=
# For bench-two: the folders of two checkouts.
OLD ?=
NEW ?= .
# For learning-seeds: targets of tests/learning/settings.py, and seeds of each.
TARGETS ?= cartpole_impala
SEEDS ?= 24
# For chaos and soak.
MINUTES ?=
SEED ?= 0

# Nested thread pools are what makes parallel training slow; numpy and torch read these when imported.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP) ## Build .venv with what training needs, from the pins in constraints.txt

setup-dev: $(DEV_STAMP) ## Add to it what the test suite needs: pytest, mypy, ruff, ...

# The stamp is touched last, so an interrupted install is done again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed, $(PYTHON) is $$($(PYTHON) -V). Set PYTHON=python3.11."; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Paceline and the packages that it needs into $(VENV)"
	@$(BIN)/python $(PIP) -e .
	@touch $@

$(DEV_STAMP): $(STAMP)
	@echo "Installing the packages that the test suite needs into $(VENV)"
	@$(BIN)/python $(PIP) -e '.[dev]'
	@touch $@

# The picture in README.md is the one that this target draws. To renew it, on a machine that runs nothing else:
#   make demo && cp runs/comparison.png docs/images/comparison.png
demo: setup ## Train CartPole sequentially, then in parallel, and compare (about a minute)
	@echo "1 of 3: train in one process"
	@$(BIN)/paceline train ppo --config configs/demo.yaml --num-workers 0 --output-dir runs/demo_sequential --overwrite
	@echo "2 of 3: train again on two workers, with the same seed and the same number of steps"
	@$(BIN)/paceline train ppo --config configs/demo.yaml --num-workers 2 --output-dir runs/demo_parallel --overwrite
	@echo "3 of 3: compare the two"
	@$(BIN)/paceline compare runs/demo_sequential runs/demo_parallel --output-dir runs
	@echo "Open the picture runs/comparison.png, or the page runs/comparison.html in a browser."

train-sequential: setup ## Train DURATION=1.0 hours on ENV=CartPole-v1 in one process
	@$(BIN)/paceline train ppo --config configs/ppo_sequential.yaml --env $(ENV) --duration $(DURATION) \
		--output-dir $(SEQUENTIAL) $(ARGS)

# The number of envs stays that of the sequential run whatever WORKERS is, so that the two can be compared.
train-parallel: setup ## The same on WORKERS=4 worker processes
	@$(BIN)/paceline train ppo --config configs/ppo_parallel.yaml --env $(ENV) --duration $(DURATION) \
		--num-workers $(WORKERS) --n-envs 32 --output-dir $(PARALLEL) $(ARGS)

compare: setup ## Put the two side by side: table, comparison.png, comparison_report.txt, comparison.html
	@$(BIN)/paceline compare --sequential $(SEQUENTIAL) --parallel $(PARALLEL) --output-dir $(COMPARE_DIR) $(ARGS)

tensorboard: setup ## Show the runs under runs/ in a browser
	@$(BIN)/tensorboard --logdir runs

test: lint types layers unit ## Everything that must pass: lint, strict types, layers, the default test suite

check: test ## The same, under its other name

format: setup-dev ## Rewrite the source in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: setup-dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: setup-dev
	@$(BIN)/mypy

layers: setup-dev
	@$(BIN)/python -m pytest -q tests/unit/test_layers.py

unit: setup-dev
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

# In an environment of its own, so that the default suite stays what it is without extras.
test-sb3: ## The adapter for stable-baselines3, with its extra, in .venv-sb3
	@$(MAKE) --no-print-directory VENV=.venv-sb3 setup
	@.venv-sb3/bin/python $(PIP) -e '.[dev,sb3]'
	@.venv-sb3/bin/python -m pytest -q tests/unit/integrations/test_sb3.py $(PYTEST_ARGS)

test-slow: setup-dev ## Learning tests and other long ones
	@$(BIN)/python -m pytest -q -m "slow or chaos" $(PYTEST_ARGS)

# A table of steps to the target by seed: evidence for the budgets in configs/. Slow: a run takes 5 to 30 seconds.
learning-seeds: setup-dev ## Train TARGETS="cartpole_impala ..." with SEEDS=24 seeds each, print the steps that each needs
	@PYTHONPATH=. $(BIN)/python -m tests.learning.seeds $(TARGETS) --seeds $(SEEDS) $(ARGS)

golden: setup-dev ## Store the weights hashes of this CPU model anew, after an intended change of bits (write an ADR)
	@PYTHONPATH=. $(BIN)/python -m tests.golden.stored_runs

# Refuses without ARGS=--replace-old-runs: stored runs of earlier versions are what proves that old runs load.
golden-checkpoints: setup-dev ## Replace the stored runs that must still load and resume; refuses without a flag that it names
	@PYTHONPATH=. $(BIN)/python -m tests.golden.stored_runs --checkpoints $(ARGS)

chaos: setup ## Random faults in all modes (MINUTES=10 SEED=0); fails if an invariant is violated
	@$(BIN)/python -m benchmarks.faults.chaos --minutes $(or $(MINUTES),10) --seed $(SEED) $(ARGS)

soak: setup ## Kill a worker every ten seconds (MINUTES=30); fails if memory or open files grow
	@$(BIN)/python -m benchmarks.faults.soak --minutes $(or $(MINUTES),30) $(ARGS)

bench-faults: setup ## kill -9 of a worker and a hanging env in three libraries side by side
	@$(BIN)/python -m benchmarks.faults.side_by_side

# Ray goes into an environment of its own, so that the one that `make test` uses stays without it.
$(RAY_STAMP): pyproject.toml constraints.txt
	@test -x $(RAY_VENV)/bin/python || $(PYTHON) -m venv $(RAY_VENV)
	@echo "Installing into $(RAY_VENV)"
	@$(RAY_VENV)/bin/python $(PIP) -e '.[dev,ray]'
	@touch $@

test-ray: $(RAY_STAMP) ## Several nodes on this machine: the runtime of a Ray cluster (about ten minutes)
	@$(RAY_VENV)/bin/python -m pytest -q -m ray tests/ray $(PYTEST_ARGS)

# RLlib pins another Gymnasium: the environment is the one that it is measured in, with ours on the path.
test-rllib: setup ## RLlib's PPO on our envs: examples/rllib_ppo.py, a few iterations
	@$(BIN)/python -m benchmarks.harness.peer_venvs rllib
	@for env in CartPole-v1 paceline/Busy-v0; do \
		PYTHONPATH=src benchmarks/.venvs/rllib/bin/python examples/rllib_ppo.py --env $$env --batch 256 --iterations 2 \
		|| exit 1; done

bench-ray: $(RAY_STAMP) ## Ray runtime against worker processes and RLlib; bytes sent per step
	@$(RAY_VENV)/bin/python -m benchmarks.suites.ray_overhead $(ARGS)

bench: setup ## Measure the ratios of the regression check (under three minutes)
	@$(BIN)/python -m benchmarks.suites.ratios $(ARGS)

bench-check: setup ## Compare them with benchmarks/results/baseline.json; fails if one fell beyond its noise
	@$(BIN)/python -m benchmarks.suites.ratios --check $(ARGS)

bench-baseline: setup ## Measure them as the new baseline, on an idle machine; then commit it
	@$(BIN)/python -m benchmarks.suites.ratios --renew $(ARGS)

bench-grad: setup ## Updates on one thread, two torch threads and two workers, by grad_shards
	@$(BIN)/python -m benchmarks.suites.grad $(ARGS)

bench-scaling: setup ## Steps/s and memory over envs and workers (about ten minutes)
	@$(BIN)/python -m benchmarks.suites.scaling $(ARGS)

bench-learning: setup ## Learning curves against stable-baselines3, five seeds
	@$(BIN)/python -m benchmarks.suites.learning $(ARGS)

# LunarLander needs Box2D and HalfCheetah MuJoCo, which the default suite stays without.
bench-defaults: ## Default settings on standard tasks, ten seeds, beside stable-baselines3's (hours), in .venv-defaults
	@$(MAKE) --no-print-directory VENV=.venv-defaults setup
	@.venv-defaults/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,sb3]' \
		'gymnasium[box2d]' mujoco imageio
	@PYTHONPATH=src:. .venv-defaults/bin/python -m benchmarks.suites.defaults $(ARGS)

bench-waterfall: setup ## Time per step by part: env, inference, waiting, learning
	@$(BIN)/python -m benchmarks.suites.waterfall $(ARGS)

bench-ceiling: setup ## One training on two workers against two independent trainings at once
	@$(BIN)/python -m benchmarks.suites.ceiling $(ARGS)

bench-two: setup ## Steps/s of two checkouts in alternating windows: OLD=path NEW=path
	@$(BIN)/python -m benchmarks.suites.two_checkouts $(OLD) $(NEW) $(ARGS)

bench-modes: setup ## PPO, pipeline and asynchronous modes on slow and uneven envs
	@$(BIN)/python -m benchmarks.suites.modes $(ARGS)

bench-lag: setup ## Policy lag of real runs
	@$(BIN)/python -m benchmarks.suites.lag $(ARGS)

bench-trace: setup ## Write the functions that one batch passes through into docs/explain/follow-one-batch.md
	@$(BIN)/python -m benchmarks.suites.trace_batch --write > /dev/null

bench-docs: setup ## Copy results into README.md and docs/
	@$(BIN)/python -m benchmarks.harness.figures

bench-sb3: setup ## Sequential PPO against stable-baselines3, in one run
	@$(BIN)/python -m benchmarks.suites.sb3_ppo

bench-peers: setup ## Other RL libraries: speed on four workloads, time to solve CartPole (two hours; PEERS_ARGS)
	@$(BIN)/python -m benchmarks.suites.against_peers $(PEERS_ARGS)
	@$(BIN)/python -m benchmarks.suites.against_peers --solve $(PEERS_ARGS)

bench-solve: setup ## Time to solve CartPole, against other libraries (about 15 minutes)
	@$(BIN)/python -m benchmarks.suites.against_peers --solve $(PEERS_ARGS)

bench-dqn: setup ## DQN against stable-baselines3, and parallel against sequential
	@$(BIN)/python -m benchmarks.suites.dqn $(ARGS)

bench-replay: setup ## Replay buffer: steps written and batches drawn per second
	@$(BIN)/python -m benchmarks.suites.replay $(ARGS)

bench-games: setup ## Games per second of two random players
	@$(BIN)/python -m benchmarks.suites.games $(ARGS)

bench-vector: setup ## make_vec against other vector envs, random actions (about a quarter of an hour)
	@$(BIN)/python -m benchmarks.suites.vector $(ARGS)

bench-cyborg: setup ## CybORG adapter against the stock simulator (CYBORG_PATH, extra cyborg)
	@$(BIN)/python -m benchmarks.suites.cyborg $(ARGS)

bench-cyber: setup ## Network defence: episodes/s of PPO, with and without alignment reward
	@$(BIN)/python -m benchmarks.suites.cyber_train $(ARGS)

bench-kernels: setup ## Microseconds of acting, learning and GAE, next to plain forms
	@$(BIN)/python -m benchmarks.suites.kernels

bench-env-loop: setup ## What the step loop adds to each env step
	@$(BIN)/python -m benchmarks.suites.env_loop $(ARGS)

bench-round-trip: setup ## Time to wake a worker and receive its reply
	@$(BIN)/python -m benchmarks.suites.round_trip $(ARGS)

bench-display: setup ## Cost of the live display
	@$(BIN)/python -m benchmarks.suites.display $(ARGS)

bench-cyber-env: setup ## Steps/s of the network-defence env on one core
	@$(BIN)/python -m benchmarks.suites.cyber_env $(ARGS)

bench-weights: setup ## Time to send a million parameters to four workers
	@$(BIN)/python -m benchmarks.suites.weights

bench-workers: setup ## Memory of a worker, and start-up time of eight
	@$(BIN)/python -m benchmarks.suites.workers

keywords: setup-dev ## Write config/keywords.py from the settings, so that type checkers and editors know them
	@PYTHONPATH=. $(BIN)/python -m tests.keywords

docs-picture: setup-dev ## Draw docs/images/rooms.svg from the imports and the layer table
	@PYTHONPATH=. $(BIN)/python -m tests.rooms

docs: setup-dev ## Run the code in README.md and docs/
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal tests/docs $(PYTEST_ARGS)

clean: ## Remove caches (not .venv, not runs/)
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
