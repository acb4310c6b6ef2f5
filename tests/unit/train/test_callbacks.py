"""Callbacks: order of the hooks, stopping a run, errors, numbers that they record, and the built-in callbacks."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from paceline import PPO
from paceline.config.sections import RunConfig
from paceline.errors import CallbackError, ConfigError
from paceline.insight.runs.results import read_run
from paceline.measure.episodes import Episodes
from paceline.measure.record import EvaluationRow
from paceline.train.callbacks import HOOKS, Callbacks, Moment, StopAtMeans, StopAtScore

STEPS = 16 * 8
"""Steps of one rollout of `small`."""


def moment(**changes: Any) -> Moment:
    whole: dict[str, Any] = {
        "steps": 10, "episodes": 100, "iteration": 1, "wall_s": 1.0, "mean_return": 5.0, "mean_length": 5.0,
        "reward_parts": {}, "finished": Episodes.none(),
    }  # fmt: skip
    return Moment(**{**whole, **changes})


def small(**settings: Any) -> PPO:
    return PPO("CartPole-v1", **{"num_workers": 0, "n_envs": 8, "n_steps": 16, "n_eval_episodes": 1, **settings})


class Diary:
    """Records every call; returns or raises the given answer."""

    def __init__(self, **answers: Any) -> None:
        self.seen: list[tuple[str, Moment]] = []
        self._answers = answers

    def _note(self, hook: str, moment: Moment) -> Any:
        self.seen.append((hook, moment))
        answer = self._answers.get(hook)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def on_rollout(self, moment: Moment) -> Any:
        return self._note("on_rollout", moment)

    def on_update(self, moment: Moment) -> Any:
        return self._note("on_update", moment)

    def on_evaluation(self, moment: Moment) -> Any:
        return self._note("on_evaluation", moment)

    def on_checkpoint(self, moment: Moment) -> Any:
        return self._note("on_checkpoint", moment)

    def on_stop(self, moment: Moment) -> Any:
        return self._note("on_stop", moment)

    @property
    def hooks(self) -> list[str]:
        return [hook for hook, _ in self.seen]


def test_hooks_are_called_in_order_with_the_present_state(tmp_path: Path) -> None:
    diary = Diary()
    with small(output_dir=tmp_path / "run", eval_freq=2 * STEPS, save_freq=2 * STEPS) as agent:
        agent.learn(3 * STEPS, callbacks=[diary])
        assert agent.summary is not None
    first, second, last = (
        ["on_rollout", "on_update"],
        ["on_rollout", "on_update", "on_evaluation", "on_checkpoint"],
        # In the end the checkpoint comes first: an evaluation may take long, or fail.
        ["on_rollout", "on_update", "on_checkpoint", "on_evaluation", "on_stop"],
    )
    assert diary.hooks == first + second + last
    moments = [each for _, each in diary.seen]
    assert [each.iteration for each in moments] == [1] * 2 + [2] * 4 + [3] * 5
    assert [each.steps for each in moments] == [STEPS] * 2 + [2 * STEPS] * 4 + [3 * STEPS] * 5
    assert moments[0].train == {}
    assert moments[1].train["n_updates"] > 0
    assert moments[2].train == moments[1].train  # the newest update, while the next one is still to come
    assert moments[3].evaluation is None
    assert moments[4].evaluation is not None
    assert moments[5].evaluation == moments[4].evaluation
    assert moments[5].checkpoint is not None
    assert moments[5].checkpoint.name == "step_000000000256"
    assert moments[-2].stop_reason == moments[-1].stop_reason == "total_timesteps"
    assert sum(len(each.finished) for hook, each in diary.seen if hook == "on_update") == moments[-1].episodes > 0
    assert [each.wall_s for each in moments] == sorted(each.wall_s for each in moments)


@pytest.mark.parametrize("hook", ["on_rollout", "on_update", "on_evaluation", "on_checkpoint"])
def test_returning_false_stops_the_run_after_evaluation_and_checkpoint(tmp_path: Path, hook: str) -> None:
    diary = Diary(**{hook: False})
    with small(output_dir=tmp_path / "run", eval_freq=STEPS, save_freq=STEPS) as agent:
        agent.learn(100 * STEPS, callbacks=[Diary(), diary])
        summary = agent.summary
        assert summary is not None
        assert summary.stop_reason == "callback Diary"
        assert summary.finished
        assert summary.steps == STEPS
        assert diary.hooks == list(HOOKS)
        assert diary.seen[-1][1].stop_reason == "callback Diary"
        agent.learn(STEPS)  # the agent can continue
        assert agent.summary is not None
        assert agent.summary.stop_reason == "total_timesteps"


@pytest.mark.parametrize("answer", [None, True, 0, "no"])
def test_only_false_stops_the_run(answer: Any) -> None:
    class Watcher:
        def on_update(self, moment: Moment) -> Any:
            return answer

    assert Callbacks([Watcher()])("on_update", moment()) is None


def test_all_callbacks_are_called_and_the_first_that_stops_gives_the_reason() -> None:
    class Stopper:
        def on_update(self, moment: Moment) -> bool:
            return False

    diary = Diary(on_update=False)
    assert Callbacks([Stopper(), diary])("on_update", moment()).endswith("Stopper")  # type: ignore[union-attr]
    assert diary.hooks == ["on_update"]


@pytest.mark.parametrize("hook", ["on_rollout", "on_update", "on_evaluation", "on_stop"])
def test_an_exception_ends_the_run_and_names_the_callback(tmp_path: Path, hook: str) -> None:
    diary = Diary(**{hook: ValueError("no such file")})
    with small(output_dir=tmp_path / "run") as agent:
        with pytest.raises(CallbackError, match=rf"callback Diary\.{hook}: raised ValueError: no such file \(at step"):
            agent.learn(STEPS, callbacks=[diary])
        assert diary.hooks.count("on_stop") == 1
    assert '"stop_reason": "CallbackError"' in (tmp_path / "run" / "summary.json").read_text()
    assert f"callback Diary.{hook}: raised" in (tmp_path / "run" / "train.log").read_text()


def test_a_callback_may_have_a_subset_of_the_hooks() -> None:
    class OnlyStop:
        def on_stop(self, moment: Moment) -> None:
            pass

    callbacks = Callbacks([OnlyStop()])
    assert "on_stop" in callbacks
    assert "on_update" not in callbacks
    assert "on_update" not in Callbacks()


class Misspelt:
    def on_roll_out(self, moment: Moment) -> None:
        pass


class NoMethod:
    on_update = 3


class StepOfSB3:
    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        pass


class EndOfSB3:
    def on_training_end(self) -> None:
        pass


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        (Misspelt(), "a run never calls on_roll_out. Did you mean 'on_rollout'?"),
        (NoMethod(), "on_update must be a method"),
        (StepOfSB3(), "a run never calls on_step. on_rollout is called after each rollout."),
        (EndOfSB3(), "a run never calls on_training_end. Write on_stop."),
        (Diary, "is a class. Give an instance: Diary()."),
        (object(), "has none of the methods on_rollout, on_update"),
        (lambda moment: None, "has none of the methods"),
    ],
)
def test_invalid_callbacks_raise_before_workers_start(callback: object, said: str) -> None:
    agent = small()
    with pytest.raises(ConfigError) as caught:
        agent.learn(STEPS, callbacks=[callback])
    assert said in str(caught.value)
    assert agent._run is None


def test_stop_at_score_by_episodes_needs_a_hundred_episodes() -> None:
    stop = StopAtScore(5.0)
    assert stop.on_update(moment(mean_return=5.0)) is False
    assert stop.on_update(moment(mean_return=4.99)) is True
    assert stop.on_update(moment(mean_return=50.0, episodes=99)) is None
    assert stop.on_update(moment(mean_return=None)) is None
    assert stop.on_evaluation(moment(evaluation=EvaluationRow(50.0, 1.0))) is None


def test_stop_at_score_by_evaluation_ignores_episodes() -> None:
    stop = StopAtScore(5.0, by="evaluation")
    assert stop.on_evaluation(moment(evaluation=EvaluationRow(5.0, 1.0))) is False
    assert stop.on_evaluation(moment(evaluation=EvaluationRow(4.9, 1.0))) is True
    assert stop.on_update(moment(mean_return=50.0)) is None


def test_invalid_scores_raise() -> None:
    with pytest.raises(ConfigError, match="finite"):
        StopAtScore(float("nan"))
    with pytest.raises(ConfigError, match="by="):
        StopAtScore(1.0, by="luck")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="stop_at_score=inf"):
        RunConfig(stop_at_score=float("inf"))
    with pytest.raises(ConfigError, match="n_eval_episodes=0 disables them"):
        small(stop_at_score=1, eval_freq=100, n_eval_episodes=0)


@pytest.mark.parametrize("eval_freq", [0, STEPS])
def test_the_setting_stop_at_score_stops_a_run(eval_freq: int) -> None:
    with small(stop_at_score=5, eval_freq=eval_freq) as agent:
        agent.learn(50_000)
        assert agent.summary is not None
        assert agent.summary.stop_reason == (
            "mean return of an evaluation >= 5 reached" if eval_freq else "mean return of 100 episodes >= 5 reached"
        )
        # Evaluations decide where there are any: after the first rollout, long before 100 episodes have ended.
        assert (agent.summary.episodes >= 100) == (eval_freq == 0)


def test_stop_at_means_needs_all_goals_and_a_hundred_episodes() -> None:
    stop = StopAtMeans({"compliance": 0.9, "fixes": 1.0})
    assert stop.on_update(moment(reward_parts={"compliance": 0.9, "fixes": 1.0})) is False
    assert stop.on_update(moment(reward_parts={"compliance": 0.9, "fixes": 0.5})) is True
    assert stop.on_update(moment(reward_parts={"compliance": 1.0, "fixes": 1.0}, episodes=99)) is None
    everything = moment(reward_parts={"compliance": 0.95, "fixes": 1.5})
    assert Callbacks([stop])("on_update", everything) == "compliance >= 0.9 and fixes >= 1 reached"


def test_stop_at_an_unknown_measure_raises() -> None:
    with (
        pytest.raises(ConfigError, match="no reward shaper reports 'compliance'"),
        small(stop_at="compliance=.9") as agent,
    ):
        agent.learn(100)
    with pytest.raises(ConfigError, match="compliance='high' must be a finite number"):
        RunConfig(stop_at={"compliance": "high"})


def test_a_run_without_an_agent_says_how_to_get_one() -> None:
    with pytest.raises(ConfigError, match=r"train\(config\) runs without an agent. Use PPO\("):
        _ = moment().agent


class Records:
    """Records a number in every hook that it has."""

    def on_rollout(self, moment: Moment) -> None:
        moment.record("mine/rollouts", moment.iteration)

    def on_update(self, moment: Moment) -> None:
        if moment.iteration % 2 == 0:
            moment.record("even", np.float32(moment.iteration / 2))

    def on_evaluation(self, moment: Moment) -> None:
        assert moment.evaluation is not None
        moment.record("mine/score", moment.evaluation.mean_reward)

    def on_checkpoint(self, moment: Moment) -> None:
        moment.record("mine/checkpoint", moment.steps)

    def on_stop(self, moment: Moment) -> None:
        moment.record("mine/end", -1)


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("workers", [0, 2])
def test_recorded_numbers_are_in_every_log(tmp_path: Path, workers: int) -> None:
    run = tmp_path / "run"
    settings = {"num_workers": workers, "output_dir": run, "eval_freq": 2 * STEPS, "save_freq": 2 * STEPS}
    with small(**settings) as agent, small(num_workers=workers) as alone:
        agent.learn(5 * STEPS, callbacks=[Records()])
        alone.learn(5 * STEPS)
        assert agent.summary is not None
        assert agent.get_weights().tobytes() == alone.get_weights().tobytes()
        own = agent.summary.own
    rows = rows_of(run)
    assert [row["mine/rollouts"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row["even"] for row in rows] == ["", "1", "", "2", ""]
    assert [row["mine/score"] for row in rows] == [row["eval/mean_reward"] for row in rows]
    assert [row["mine/checkpoint"] for row in rows] == ["", "", str(2 * STEPS), "", str(4 * STEPS)]
    assert own == json.loads((run / "summary.json").read_text())["own"]
    assert {name: own[name] for name in ("mine/rollouts", "even", "mine/checkpoint", "mine/end")} == {
        "mine/rollouts": 5, "even": 2, "mine/checkpoint": 5 * STEPS, "mine/end": -1,
    }  # fmt: skip
    log = EventAccumulator(str(run))
    log.Reload()
    assert [(each.step, each.value) for each in log.Scalars("even")] == [(2 * STEPS, 1.0), (4 * STEPS, 2.0)]
    assert [(each.step, each.value) for each in log.Scalars("mine/end")] == [(5 * STEPS, -1.0)]


def test_a_resumed_run_keeps_the_columns_of_recorded_numbers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with small(output_dir=run) as agent:
        agent.learn(2 * STEPS, callbacks=[Records()])
    with small(output_dir=run, resume=True) as again:
        again.learn(2 * STEPS, callbacks=[Records()])
    rows = rows_of(run)
    assert [row["mine/rollouts"] for row in rows] == ["1", "2", "3", "4"]
    assert [row["even"] for row in rows] == ["", "1", "", "2"]
    assert read_run(run).steps == 4 * STEPS


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("train/loss", 1.0, "the run itself writes 'train/loss'. Choose another name, such as 'mine/train/loss'"),
        ("steps", 1.0, "the run itself writes 'steps'"),
        ("a,b", 1.0, "without commas, quotes and line breaks"),
        ("", 1.0, "without commas"),
        (3, 1.0, "a name must be text"),
        ("mine", "much", "'mine' must be a number"),
        ("mine", np.zeros(2), "'mine' must be a number"),
    ],
)
def test_invalid_records_end_the_run_with_an_error(name: Any, value: Any, said: str) -> None:
    class Recorder:
        def on_update(self, moment: Moment) -> None:
            moment.record(name, value)

    with small() as agent, pytest.raises(CallbackError) as caught:
        agent.learn(STEPS, callbacks=[Recorder()])
    assert said in str(caught.value)
