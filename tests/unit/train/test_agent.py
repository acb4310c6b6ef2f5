"""What all classes of the Python API have: learn, predict, evaluate, save, load."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
import torch
from tests.games import Counter, Drift

from paceline import A3C, DQN, IMPALA, PPO
from paceline.errors import CallbackError, CheckpointError, ConfigError
from paceline.train.agent import Agent
from paceline.train.callbacks import Moment

SMALL: dict[str, Any] = {
    "n_envs": 4,
    "group_size": 2,
    "n_steps": 16,
    "batch_size": 64,
    "num_workers": 0,
    "n_eval_episodes": 0,
    "seed": 3,
    "hidden_sizes": (16,),
}
OBS = np.array([0.1, -0.2, 0.03, 0.4], np.float32)


def weights(agent: PPO) -> bytes:
    return agent._current().weights.numpy().tobytes()


def test_an_untrained_agent_predicts_and_starts_no_process() -> None:
    agent = PPO("CartPole-v1", **SMALL)
    assert agent.predict(OBS)[0] in (0, 1)
    assert agent.summary is None
    assert agent._run is None
    assert PPO("CartPole-v1", **SMALL).predict(OBS) == agent.predict(OBS)


def test_predict_has_the_form_of_stable_baselines3() -> None:
    """As its `evaluate_policy` calls it, and as its users write it."""
    agent = PPO("CartPole-v1", **SMALL)
    action, state = agent.predict(OBS, deterministic=True)
    actions, states = agent.predict(np.stack([OBS, -OBS]), state=state, episode_start=np.ones(2, bool))
    assert state is states is None
    assert actions.tolist() == [action, agent.predict(-OBS)[0]]
    assert agent.predict(OBS, None, None, True) == (action, None)


def test_learning_changes_the_weights_and_a_second_learn_continues() -> None:
    with PPO("CartPole-v1", **SMALL) as agent, PPO("CartPole-v1", **SMALL) as once:
        before = weights(agent)
        agent.learn(128)
        assert agent.summary is not None
        assert agent.summary.steps == 128
        middle = weights(agent)
        assert middle != before
        assert agent.learn(total_timesteps=64) is agent
        assert agent.summary.steps == 192
        assert agent.summary.iterations == 3
        assert weights(agent) not in (before, middle)
        once.learn(192)
        assert weights(once) == weights(agent), "two calls learn as one does: episodes and optimiser continue"


def test_budgets_of_learn_count_from_the_call() -> None:
    with PPO("CartPole-v1", **SMALL) as agent:
        agent.learn(total_episodes=5)
        assert agent.summary is not None
        assert agent.summary.stop_reason == "total_episodes"
        first = agent.summary.episodes
        assert first >= 5
        agent.learn(total_episodes=5)
        assert agent.summary.episodes >= first + 5
        agent.learn(duration="0.05s")
        assert agent.summary.stop_reason == "duration"
        assert agent.summary.wall_s > 0.05


def test_a_loaded_model_equals_the_saved_one(tmp_path: Path) -> None:
    with PPO("CartPole-v1", **SMALL) as agent:
        agent.learn(64)
        agent.save(tmp_path / "cartpole")
    loaded = PPO.load(tmp_path / "cartpole")
    assert weights(loaded) == weights(agent)
    assert loaded.config.n_envs == 4
    assert loaded.config.policy.hidden_sizes == (16,)
    assert [loaded.predict(OBS * n) for n in range(5)] == [agent.predict(OBS * n) for n in range(5)]
    assert loaded.evaluate(2) == agent.evaluate(2)
    with loaded:
        loaded.learn(64)
    assert weights(loaded) != weights(agent)


def test_a_saved_model_contains_observation_statistics(tmp_path: Path) -> None:
    with PPO(Drift, **SMALL, normalize_obs=True) as agent:
        agent.learn(64)
        obs = np.array([55.0, 45.0, 50.0])
        expected, _ = agent.predict(obs)
        agent.save(tmp_path / "drift")
    with pytest.raises(ConfigError, match=r"the env was a Python object.*load\(path, env="):
        PPO.load(tmp_path / "drift")
    loaded = PPO.load(tmp_path / "drift", env=Drift)
    np.testing.assert_array_equal(loaded.predict(obs)[0], expected)
    fresh = PPO(Drift, **SMALL, normalize_obs=True)
    assert not np.array_equal(fresh.predict(obs)[0], expected)


def test_settings_may_change_when_loading_but_not_the_network(tmp_path: Path) -> None:
    agent = PPO("CartPole-v1", **SMALL)
    agent.save(tmp_path / "m")
    changed = PPO.load(tmp_path / "m", n_envs=8, learning_rate=0.1)
    assert changed.config.n_envs == 8
    assert changed.config.training.learning_rate == 0.1
    with pytest.raises(CheckpointError, match="hidden_sizes"):
        PPO.load(tmp_path / "m", hidden_sizes=(32,))
    with pytest.raises(CheckpointError, match="obs is"):
        PPO.load(tmp_path / "m", env="Acrobot-v1")
    with pytest.raises(CheckpointError, match="no such folder"):
        PPO.load(tmp_path / "nowhere")


def test_an_agent_loads_from_a_run_folder(tmp_path: Path) -> None:
    with PPO("CartPole-v1", **{**SMALL, "n_eval_episodes": 1}, output_dir=tmp_path / "run", save_freq=64) as agent:
        agent.learn(128)
    loaded = PPO.load(tmp_path / "run")
    assert weights(loaded) == weights(agent)
    assert loaded.config.run.output_dir is None, "an agent does not write into the run it came from"
    best = PPO.load(tmp_path / "run" / "best_model")
    assert best.predict(OBS)[0] in (0, 1)


def test_init_from_loads_weights_and_no_counters(tmp_path: Path) -> None:
    with PPO("CartPole-v1", **SMALL, output_dir=tmp_path / "run") as agent:
        agent.learn(64)
    with PPO("CartPole-v1", **{**SMALL, "n_envs": 8, "seed": 9}, init_from=tmp_path / "run") as warm:
        warm.learn(1)
        assert warm.summary is not None
        assert warm.summary.steps == 128, "its own counters"
    with PPO("CartPole-v1", **{**SMALL, "n_envs": 8, "seed": 9}) as cold:
        cold.learn(1)
    assert weights(warm) != weights(cold)


def test_a_closed_agent_predicts_and_may_learn_again() -> None:
    agent = PPO("CartPole-v1", **{**SMALL, "num_workers": 2})
    agent.learn(64)
    family = psutil.Process().children(recursive=True)
    workers = [child for child in family if "paceline: worker" in " ".join(child.cmdline())]
    assert len(workers) == 2
    trained = weights(agent)
    agent.close()
    agent.close()
    assert not [worker for worker in workers if worker.is_running()]
    assert weights(agent) == trained
    agent.learn(64)
    agent.close()
    assert weights(agent) != trained
    assert agent.summary is not None
    assert agent.summary.steps == 64, "a new run from the weights it had"


class Impatient(Counter):
    """Presses Ctrl-C twice in its twentieth step."""

    steps = 0

    def step(self, action: Any) -> Any:
        Impatient.steps += 1
        if Impatient.steps == 20:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return super().step(action)


def test_a_second_ctrl_c_leaves_an_agent_with_the_weights_of_the_last_update_that_can_learn_on() -> None:
    with PPO(Impatient, n_envs=2, n_steps=8, batch_size=16, num_workers=0, n_eval_episodes=0) as agent:
        before = agent.get_weights()
        with pytest.raises(KeyboardInterrupt):
            agent.learn(1_000)
        assert agent.summary is not None
        assert (agent.summary.stop_reason, agent.summary.steps) == ("SIGINT", 16)
        assert not np.array_equal(agent.get_weights(), before)
        agent.learn(32)
        assert agent.summary.finished


def test_close_makes_no_env_and_so_ends_workers_of_a_failing_env() -> None:
    """Closing keeps the weights without making an env for it."""
    made = []

    def make() -> gym.Env[Any, Any]:
        made.append(1)
        if len(made) > 6:  # the first probe and the four envs of the run are fine
            raise OSError("licence expired")
        return Counter()

    agent = PPO(make, **SMALL)
    agent.learn(64)
    made.extend([1] * 10)
    run = agent._run
    assert run is not None
    agent.close()
    assert agent._snapshot is not None
    assert agent._run is None
    assert len(run.training.arena._arrays) == 0, "workers ended and memory freed"


def test_evaluation_plays_the_same_episodes_in_every_call() -> None:
    agent = PPO("CartPole-v1", **SMALL)
    result = agent.evaluate(3)
    assert len(result.returns) == 3
    assert agent.evaluate(3) == result
    assert agent.evaluate(3, deterministic=False).returns != result.returns


def test_invalid_settings_raise_before_training() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'n_envs'"):
        PPO("CartPole-v1", n_env=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="not registered"):
        PPO("CartPole-v99").predict(OBS)


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_verbose_shows_the_panel(verbose: int, capfd: pytest.CaptureFixture[str]) -> None:
    with PPO("CartPole-v1", verbose=verbose, **SMALL) as agent:
        agent.learn(64)
    shown = capfd.readouterr().err
    assert ("ppo on CartPole-v1: 4 envs" in shown) == ("finished (total_timesteps)" in shown) == bool(verbose)
    assert bool(shown) == bool(verbose), "silent by default, as stable-baselines3 is"


def test_quiet_is_the_older_name_of_verbose(capfd: pytest.CaptureFixture[str]) -> None:
    with PPO("CartPole-v1", quiet=False, **SMALL) as agent:
        agent.learn(64)
    assert "finished (total_timesteps)" in capfd.readouterr().err


def test_progress_bar_shows_lines_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with PPO("CartPole-v1", **SMALL) as agent:
        agent.learn(64, progress_bar=True)
        assert "64 / 64 steps" in capfd.readouterr().err
        agent.learn(64)
        assert capfd.readouterr().err == ""


def test_an_invalid_verbose_raises() -> None:
    with pytest.raises(ConfigError, match=r"verbose=3: must be 0 \(silent\), 1 or 2"):
        PPO("CartPole-v1", verbose=3)


def test_load_passes_settings_and_verbose_on(tmp_path: Path) -> None:
    PPO("CartPole-v1", **SMALL).save(tmp_path / "m")
    assert PPO.load(tmp_path / "m").config.run.quiet
    assert not PPO.load(tmp_path / "m", verbose=1).config.run.quiet


def test_the_policy_has_the_newest_weights_and_is_updated_in_place() -> None:
    with PPO("CartPole-v1", **SMALL) as agent:
        policy = agent.policy

        def values() -> bytes:
            return torch.nn.utils.parameters_to_vector(policy.parameters()).detach().numpy().tobytes()

        before = values()
        agent.learn(64)
        learned = values()
        assert before != learned
        assert agent.policy is policy
        agent.set_weights(np.zeros_like(agent.get_weights()))
        assert not np.frombuffer(values(), np.float32).any()
        logits, value = policy(torch.from_numpy(OBS[None]))
        assert (logits.shape, value.shape) == ((1, 2), (1,))


class Uses:
    """Uses the agent in every update, as a callback may."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.weights: list[bytes] = []
        self.saved: list[bytes] = []
        self.results: list[Any] = []
        self.actions: list[Any] = []

    def on_update(self, moment: Moment) -> None:
        agent = moment.agent
        self.weights.append(agent.get_weights().tobytes())
        self.actions.append(agent.predict(np.stack([OBS, -OBS]))[0].tolist())
        self.results.append(agent.evaluate(1))
        agent.save(self.path / str(moment.iteration))
        self.saved.append(type(agent).load(self.path / str(moment.iteration)).get_weights().tobytes())


@pytest.mark.parametrize("cls", [PPO, DQN])
@pytest.mark.parametrize("workers", [0, 2])
def test_callbacks_use_the_agent_with_its_newest_weights_and_change_nothing(
    cls: type[Agent], workers: int, tmp_path: Path
) -> None:
    settings = {key: value for key, value in SMALL.items() if key not in ("batch_size", "n_steps")}
    settings |= {"num_workers": workers} | ({"n_steps": 16} if cls is PPO else {"learning_starts": 20})
    uses = Uses(tmp_path)
    with cls("CartPole-v1", **settings) as agent, cls("CartPole-v1", **settings) as alone:
        agent.learn(700, callbacks=[uses])
        alone.learn(700)
        assert agent.get_weights().tobytes() == alone.get_weights().tobytes()
        assert agent.summary is not None
        assert len(uses.weights) == agent.summary.iterations > 2
        assert uses.saved == uses.weights
        assert len(set(uses.weights)) >= len(uses.weights) - 1, "the newest, not those of the last learn"
        assert uses.weights[-1] == agent.get_weights().tobytes()
        assert uses.results[-1] == agent.evaluate(1)


@pytest.mark.parametrize("cls", [IMPALA, A3C])
def test_callbacks_of_asynchronous_modes_see_newer_weights_in_every_update(cls: type[Agent], tmp_path: Path) -> None:
    uses = Uses(tmp_path)
    with cls("CartPole-v1", num_workers=2, n_envs=4, n_steps=16, hidden_sizes=(16,), n_eval_episodes=0) as agent:
        agent.learn(300, callbacks=[uses])
        assert len(set(uses.weights)) == len(uses.weights) > 1
        assert uses.saved == uses.weights


@pytest.mark.parametrize("call", [lambda agent: agent.learn(64), lambda agent: agent.close()], ids=["learn", "close"])
def test_a_callback_that_learns_or_closes_raises(call: Any) -> None:
    class Careless:
        def on_update(self, moment: Moment) -> None:
            call(moment.agent)

    with PPO("CartPole-v1", **SMALL) as agent:
        with pytest.raises(
            CallbackError, match=r"the agent is learning, and a callback cannot call (learn|close)\. To"
        ):
            agent.learn(64, callbacks=[Careless()])
        agent.learn(64)


def test_make_env_makes_the_env_of_the_workers() -> None:
    agent = PPO("CartPole-v1", **SMALL, frame_stack=3, env_kwargs={"render_mode": "rgb_array"})
    env = agent.make_env()
    obs, _ = env.reset(seed=1)
    assert obs.shape == (12,)
    assert env.render_mode == "rgb_array"
    assert agent.predict(obs)[0] in (0, 1)
    env.close()


def test_a_single_callback_instead_of_a_list_raises(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"callbacks: must be a list \(got a Uses\)\. Write callbacks=\[\.\.\.\]"):
        PPO("CartPole-v1", **SMALL).learn(64, callbacks=Uses(tmp_path))  # type: ignore[arg-type]


class Easy(Counter):
    """Episodes of three steps, with the spaces of `Counter`."""

    def __init__(self) -> None:
        super().__init__(length=3)


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluations_use_an_env_of_their_own(workers: int, tmp_path: Path) -> None:
    settings = {**SMALL, "num_workers": workers, "n_eval_episodes": 2, "eval_freq": 64}
    with (
        PPO(Counter, **settings, eval_env=Easy, output_dir=tmp_path / "run") as agent,
        PPO(Counter, **settings) as alone,
    ):
        agent.learn(128)
        alone.learn(128)
        assert agent.summary is not None
        assert agent.summary.final_eval is not None
        assert agent.summary.final_eval.mean_ep_length == 3
        assert agent.evaluate(2).lengths == (3, 3)
        assert agent.evaluate(2, env="tests.games:Counter").lengths == (5, 5)
        assert alone.evaluate(2).lengths == (5, 5)
        assert alone.evaluate(2, env=Easy).lengths == (3, 3)
        assert agent.get_weights().tobytes() == alone.get_weights().tobytes()
        agent.save(tmp_path / "m")
    with pytest.raises(ConfigError, match="the eval_env was a Python object"):
        PPO.load(tmp_path / "m", env=Counter)
    assert PPO.load(tmp_path / "m", env=Counter, eval_env=None).evaluate(1).lengths == (5,)


def test_an_evaluation_env_that_does_not_fit_raises_before_workers_start() -> None:
    agent = PPO("CartPole-v1", **SMALL, eval_env="Acrobot-v1")
    with pytest.raises(ConfigError, match="eval_env='Acrobot-v1': its spaces must be those of env='CartPole-v1'"):
        agent.learn(64)
    assert agent._run is None
