"""Both channels do the same (envs in this process or in workers), and failed steps raise the env's own exception."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from tests.unit.vector.toys import SampleEnv, notifications

from paceline.envs.make import EnvRecipe
from paceline.errors import ConfigError, EnvError, WorkerDied, WorkerError
from paceline.runtime.forkserver import default_start_method
from paceline.vector import asks
from paceline.vector.channel import Channel, InlineChannel, ProcessChannel, Processes, own_error
from paceline.vector.leaves import SpaceLeaves
from paceline.vector.server import Reset, VectorProgram


@pytest.fixture(params=[0, 2])
def channel(request: pytest.FixtureRequest) -> Iterator[Channel]:
    env = SampleEnv()
    program = VectorProgram(
        recipes=(EnvRecipe(source=SampleEnv),),
        num_envs=4,
        obs=SpaceLeaves.of(env.observation_space, "obs"),
        action=SpaceLeaves.of(env.action_space, "action"),
        autoreset_mode=AutoresetMode.NEXT_STEP,
        env_threads=1,
        extras={},
    )
    how = Processes(start_method=default_start_method(), cores=None, env_timeout_s=60.0, start_timeout_s=120.0)
    made: Channel = ProcessChannel(program, request.param, how) if request.param else InlineChannel(program)
    yield made
    made.close()
    made.close()


def reset(channel: Channel, envs: list[int]) -> dict[int, Any]:
    """Reset some envs; returns their infos."""
    channel.memory["due"][:] = 0
    channel.memory["due"][envs] = 1
    begun = []
    for worker, share in enumerate(channel.shares):
        own = [env for env in envs if share.first_group <= env < share.first_group + share.groups]
        if own:
            channel.begin(worker, channel.pack(Reset([10 + env for env in own], [None] * len(own))))
            begun.append(worker)
    assert channel.wait(begun, at_least=len(begun), doing="reset") == begun
    return {number: infos for worker in begun for number, infos, _ in channel.news(worker)}


def test_orders_reach_the_envs_that_are_due_and_news_come_back(channel: Channel) -> None:
    infos = reset(channel, [0, 3])
    assert {number: one["begun"] for number, (one,) in infos.items()} == {0: "10", 3: "13"}
    obs = channel.memory["obs/0"]
    assert [bool(row.any()) for row in obs] == [True, False, False, True]
    assert notifications(channel) == [1] * channel.num_workers


def test_questions_and_steps_may_alternate(channel: Channel) -> None:
    for _ in range(2):
        reset(channel, [0, 1, 2, 3])
        lengths = channel.ask(partial(asks.get_attr, "length"), [3, 1])
        assert set(lengths) == {1, 3}
        assert all(error is None and 1 <= length <= 4 for length, error in lengths.values())
    value, error = channel.ask(partial(asks.call, "whine", (), {}), [2])[2]
    assert value is None
    assert isinstance(error, KeyError)
    channel.memory["due"][:] = 1
    channel.memory["action/0"][:] = np.arange(4) % 3
    for worker in range(len(channel.shares)):
        channel.begin(worker, channel.pack(None))
    channel.wait(range(len(channel.shares)), at_least=len(channel.shares), doing="step")
    assert (channel.memory["reward"] > 0).all()


def test_an_order_that_cannot_be_pickled_raises_before_a_worker_begins(channel: Channel) -> None:
    if not channel.num_workers:
        return
    with pytest.raises(TypeError, match="pickle"):
        channel.pack(Reset([1], [{"x": (i for i in range(3))}]))
    assert notifications(channel) == [0, 0]


def caused_by(error: Exception, cause: Exception | None) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("kind", [EnvError, WorkerError])
def test_the_exception_of_an_env_names_the_env_in_a_note(kind: type[Exception]) -> None:
    own = KeyError("no such host")
    error = caused_by(kind("env 2 raised in step 3\n\nIts traceback: ..."), own)
    assert own_error(error) is own
    assert own.__notes__ == ["env 2 raised in step 3"]
    with pytest.raises(KeyError) as caught:
        raise own from error
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("direct cause") == 1
    assert text.rstrip().endswith("env 2 raised in step 3")


@pytest.mark.parametrize(
    "error",
    [
        WorkerDied("killed"),
        EnvError("no cause"),
        caused_by(WorkerError("env 0 in step 1: wrong shape"), EnvError("wrong shape")),
        caused_by(ConfigError("wrong"), KeyError()),
        KeyboardInterrupt(),
    ],
)
def test_other_failures_are_raised_as_they_are(error: BaseException) -> None:
    assert own_error(error) is None
