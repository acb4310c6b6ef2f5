# Every target sets up what it needs: only python3 (3.11 or later), git and make have to be there.
.DEFAULT_GOAL := help
.PHONY: train-sequential train-parallel compare tensorboard
.PHONY: help setup demo test check format lint types layers unit test-slow test-sb3 bench docs trace clean
.PHONY: bench-check bench-baseline bench-grad bench-scaling bench-learning bench-waterfall bench-ceiling bench-modes bench-lag bench-docs
.PHONY: golden golden-checkpoints bench-two
.PHONY: chaos soak bench-faults bench-cyber bench-cyborg test-ray test-rllib bench-ray
.PHONY: bench-dqn bench-replay bench-games bench-sb3 bench-vector bench-weights bench-workers bench-peers bench-solve

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SB3_VENV := benchmarks/.venv-sb3
SB3_STAMP := $(SB3_VENV)/.installed
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
DEMO_SECONDS ?= 25
PEERS_ARGS ?=
# For bench-two: two checkouts.
OLD ?=
NEW ?= .
# For chaos and soak.
MINUTES ?=
SEED ?= 0

# Nested thread pools are what makes parallel training slow; numpy and torch read these when imported.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP) ## Build .venv from the pins in constraints.txt

# The stamp is touched last, so an interrupted install is done again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed, $(PYTHON) is $$($(PYTHON) -V). Set PYTHON=python3.11."; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (about two minutes the first time)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# The picture in README.md is the one that this target draws. To renew it, on a machine that runs nothing else:
#   make demo && cp runs/comparison.png docs/images/comparison.png
demo: setup ## Train CartPole sequentially, then in parallel, and compare (about a minute)
	@$(BIN)/paceline train ppo --env CartPole-v1 --num-workers 0 --duration $(DEMO_SECONDS)s \
		--output-dir runs/demo_sequential --overwrite
	@$(BIN)/paceline train ppo --env CartPole-v1 --num-workers 2 --duration $(DEMO_SECONDS)s \
		--output-dir runs/demo_parallel --overwrite
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
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

# In an environment of its own, so that the default suite stays what it is without extras.
test-sb3: ## The adapter for stable-baselines3, with its extra, in .venv-sb3
	@$(MAKE) --no-print-directory VENV=.venv-sb3 setup
	@.venv-sb3/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,sb3]'
	@.venv-sb3/bin/python -m pytest -q tests/unit/integrations/test_sb3.py $(PYTEST_ARGS)

test-slow: setup ## Learning tests and other long ones
	@$(BIN)/python -m pytest -q -m "slow or chaos" $(PYTEST_ARGS)

golden: setup ## Store the weights hashes of this CPU model anew, after an intended change of bits (write an ADR)
	@PYTHONPATH=. $(BIN)/python -m tests.golden.stored_runs

# Refuses without ARGS=--replace-old-runs: stored runs of earlier versions are what proves that old runs load.
golden-checkpoints: setup ## Replace the stored runs that must still load and resume; refuses without a flag that it names
	@PYTHONPATH=. $(BIN)/python -m tests.golden.stored_runs --checkpoints $(ARGS)

chaos: setup ## Faults at random over all modes (MINUTES=10 SEED=0); fails if something that must hold does not
	@$(BIN)/python benchmarks/faults/chaos.py --minutes $(or $(MINUTES),10) --seed $(SEED) $(ARGS)

soak: setup ## Training with a worker killed every ten seconds (MINUTES=30): memory and open files must stay flat
	@$(BIN)/python benchmarks/faults/soak.py --minutes $(or $(MINUTES),30) $(ARGS)

bench-faults: setup $(SB3_STAMP) ## The same kill of a worker, and the same hang, in three libraries side by side
	@$(BIN)/python benchmarks/faults/side_by_side.py --sb3-python $(SB3_VENV)/bin/python

# Ray goes into an environment of its own, so that the one that `make test` uses stays without it.
$(RAY_STAMP): pyproject.toml constraints.txt
	@test -x $(RAY_VENV)/bin/python || $(PYTHON) -m venv $(RAY_VENV)
	@echo "Installing into $(RAY_VENV)"
	@$(RAY_VENV)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	@touch $@

test-ray: $(RAY_STAMP) ## Several nodes on this machine: the runtime of a Ray cluster (about ten minutes)
	@$(RAY_VENV)/bin/python -m pytest -q -m ray tests/ray $(PYTEST_ARGS)

# RLlib pins another Gymnasium: the environment is the one that it is measured in, with ours on the path.
test-rllib: setup ## RLlib's PPO on our envs: examples/rllib_ppo.py, a few iterations
	@$(BIN)/python -c "import sys; sys.path.insert(0, 'benchmarks'); import peer_venvs; sys.exit(peer_venvs.build('rllib'))"
	@for env in CartPole-v1 paceline/Busy-v0; do \
		PYTHONPATH=src benchmarks/.venvs/rllib/bin/python examples/rllib_ppo.py --env $$env --batch 256 --iterations 2 \
		|| exit 1; done

bench-ray: $(RAY_STAMP) ## Over Ray against processes and against RLlib, and what moves
	@$(RAY_VENV)/bin/python benchmarks/ray_overhead.py $(ARGS)

bench: setup ## The ratios that must not fall (under three minutes), to benchmarks/results/ratios.json
	@$(BIN)/python benchmarks/ratios.py $(ARGS)

bench-check: setup ## The same, compared with benchmarks/baseline.json: fails and names what fell
	@$(BIN)/python benchmarks/ratios.py --check $(ARGS)

bench-baseline: setup ## The same, as the new baseline; on a quiet machine, to be committed
	@$(BIN)/python benchmarks/ratios.py --renew $(ARGS)

bench-grad: setup ## Learning on one thread, two torch threads, two workers, by grad_shards
	@$(BIN)/python benchmarks/grad.py $(ARGS)

bench-scaling: setup ## Steps/s and memory over envs and workers (about ten minutes)
	@$(BIN)/python benchmarks/scaling.py $(ARGS)

bench-learning: setup ## Learning curves against stable-baselines3, five seeds
	@$(BIN)/python benchmarks/learning.py $(ARGS)

bench-waterfall: setup ## Where each microsecond of a step goes
	@$(BIN)/python benchmarks/waterfall.py $(ARGS)

bench-ceiling: setup ## What two cores are worth here: two trainings at once against one on two workers
	@$(BIN)/python benchmarks/ceiling.py $(ARGS)

bench-two: setup ## Old and new checkout in turns, steps/s of each and the ratio: OLD=path NEW=path
	@$(BIN)/python benchmarks/two_checkouts.py $(OLD) $(NEW) $(ARGS)

bench-modes: setup ## Barrier, pipeline and asynchronous modes where envs are slow or uneven
	@$(BIN)/python benchmarks/modes.py $(ARGS)

bench-lag: setup ## Policy lag of real runs
	@$(BIN)/python benchmarks/lag.py $(ARGS)

bench-trace: setup ## Record the functions that one batch passes through, into docs/explain/follow-one-batch.md
	@$(BIN)/python benchmarks/trace_batch.py --write > /dev/null

bench-docs: setup ## Put the newest results into the figures of the docs
	@$(BIN)/python benchmarks/figures.py

bench-sb3: setup $(SB3_STAMP) ## Sequential PPO against stable-baselines3, in one run
	@$(BIN)/python benchmarks/sb3_ppo.py --sb3-python $(SB3_VENV)/bin/python

# An environment of its own: nothing it needs may reach ours. torch goes first, by itself, so that its pin decides.
$(SB3_STAMP): benchmarks/requirements-sb3.txt
	@test -x $(SB3_VENV)/bin/python || $(PYTHON) -m venv $(SB3_VENV)
	@$(SB3_VENV)/bin/python -m pip install -qq --disable-pip-version-check torch==2.13.0
	@$(SB3_VENV)/bin/python -m pip install -qq --disable-pip-version-check -r benchmarks/requirements-sb3.txt
	@touch $@

bench-peers: setup ## All peers in one run: speed on four workloads, then time to solve CartPole (two hours), see PEERS_ARGS
	@$(BIN)/python benchmarks/against_peers.py $(PEERS_ARGS)
	@$(BIN)/python benchmarks/against_peers.py --solve $(PEERS_ARGS)

bench-solve: setup ## Wall time to solve CartPole, against peers (about 15 minutes)
	@$(BIN)/python benchmarks/against_peers.py --solve $(PEERS_ARGS)

bench-dqn: setup $(SB3_STAMP) ## DQN against stable-baselines3, and parallel against sequential
	@$(BIN)/python benchmarks/dqn.py --sb3-python $(SB3_VENV)/bin/python $(ARGS)

bench-replay: setup ## The replay alone: steps written, batches drawn
	@$(BIN)/python benchmarks/replay.py $(ARGS)

bench-games: setup ## Games a second, random against random
	@$(BIN)/python benchmarks/games.py $(ARGS)

bench-vector: setup ## make_vec against other vector envs, random actions (about a quarter of an hour)
	@$(BIN)/python benchmarks/vector.py $(ARGS)

bench-cyborg: setup ## Your own CybORG (CYBORG_PATH, extra cyborg), stock and as an env of ours
	@$(BIN)/python benchmarks/cyborg.py $(ARGS)

bench-cyber: setup ## Network defence: episodes a second of PPO with 100 envs, with and without alignment
	@$(BIN)/python benchmarks/cyber_train.py $(ARGS)

bench-weights: setup ## Handing one million parameters to four workers
	@$(BIN)/python benchmarks/weights.py

bench-workers: setup ## Memory of a worker, and the time until eight are up
	@$(BIN)/python benchmarks/workers.py

docs: setup ## Run the code in README.md and docs/
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal tests/docs $(PYTEST_ARGS)

clean: ## Remove caches (not .venv, not runs/)
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
