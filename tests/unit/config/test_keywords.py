"""Keywords for type checkers: generated from the settings, and what mypy reports about a user's script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.keywords import sources

ROOT = Path(__file__).parents[3]

GOOD = """
from pathlib import Path
import gymnasium
from paceline import A3C, APPO, DQN, IMPALA, PPO
from paceline.config.keywords import PPOKeywords
from paceline.train.callbacks import Moment

PPO("CartPole-v1")
PPO("CartPole-v1", num_workers=4, seed=7, verbose=1, hidden_sizes=[64, 64], output_dir="runs/x", n_steps=64)
PPO(lambda: gymnasium.make("CartPole-v1"), num_workers=None, env_kwargs={"size": 3}, init_from=Path("runs"))
settings: PPOKeywords = {"learning_rate": 1e-3, "lr_schedule": "linear"}
agent = PPO.load("runs/x", **settings)
agent.learn(1000, progress_bar=True).save("model")
IMPALA("CartPole-v1", max_lag=4)
APPO("CartPole-v1", clip_range=0.3)
A3C("CartPole-v1", optimizer="rmsprop")
DQN("CartPole-v1", buffer_size="1GB", double=False).learn(n_episodes=3)

class Watch:
    def on_update(self, moment: Moment) -> None:
        moment.record("mine/size", moment.agent.get_weights().std())
        moment.agent.save("model")

PPO("CartPole-v1", learning_rate=lambda left: left * 3e-4, eval_env=lambda: gymnasium.make("CartPole-v1")).learn(
    1000, callbacks=[Watch()]
)
action, _ = agent.predict([0.0, 0.0, 0.0, 0.0])
"""
BAD = {
    'PPO("CartPole-v1", num_worker=4)': 'Unexpected keyword argument "num_worker" for "PPO"; did you mean "num_w',
    'PPO("CartPole-v1", gamma="high")': 'incompatible type "str"; expected "float"',
    'PPO("CartPole-v1", activation="gelu")': "expected \"Literal['tanh', 'relu', 'elu']\"",
    'PPO("CartPole-v1", max_lag=4)': 'Unexpected keyword argument "max_lag" for "PPO"',
    'PPO(env="CartPole-v1", seed="7")': 'Argument "seed" to "PPO" has incompatible type "str"',
    'PPO.load("runs/x", n_env=3)': 'Unexpected keyword argument "n_env" for "load" of "PPO"',
}


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.name)
def test_the_keywords_are_generated_from_the_settings(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == sources()[path], "write it again: make keywords"


@pytest.mark.timeout(600)  # without a cache, mypy reads torch
def test_mypy_accepts_correct_scripts_and_names_the_mistakes_of_others(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    lines = GOOD.count("\n")
    script.write_text(GOOD + "\n".join(BAD), encoding="utf-8")
    # The configuration and cache of the project: after `make types` this takes seconds.
    command = [sys.executable, "-m", "mypy", "--no-pretty", "--hide-error-context", str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=590)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [int(error.split(":")[1]) for error in errors] == [lines + 1 + i for i in range(len(BAD))], done.stdout
    assert [(said, error) for said, error in zip(BAD.values(), errors, strict=True) if said not in error] == []
