"""`EpisodeHistory`: the actions of each env since its last reset, and their way through a checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from tests.unit.collect.histories import histories_now

from paceline.collect.history import EpisodeHistory
from paceline.spec import PLAIN, EnvSpec

SPEC = EnvSpec.of(spaces.Box(-1, 1, (2,)), spaces.Discrete(9), masked=True)


class Envs:
    """What workers would write, for three envs."""

    def __init__(self) -> None:
        self.episode = np.array([4, 5, 6])
        self.obs, self.mask = np.arange(6, dtype=np.float32).reshape(3, 2), np.ones((3, 9), np.bool_)
        self.tags = {"opponent": np.array([1, 2, 3])}

    def history(self) -> EpisodeHistory:
        return EpisodeHistory(SPEC, self.episode, lambda: ({PLAIN: self.obs}, self.mask), self.tags)


def extend(history: EpisodeHistory, actions: Any, ended: Any = None, valid: Any = None, first_env: int = 0) -> None:
    array = np.array(actions)
    no, yes = np.zeros(array.shape, np.bool_), np.ones(array.shape, np.bool_)
    history.extend(
        array,
        no if ended is None else np.array(ended, np.bool_),
        yes if valid is None else np.array(valid, np.bool_),
        first_env=first_env,
    )


def actions_of(history: EpisodeHistory) -> list[list[int]]:
    return [one.actions.tolist() for one in histories_now(history)]


def test_actions_since_the_last_end_are_kept() -> None:
    history = Envs().history()
    extend(history, [[1, 2, 3], [4, 5, 6]])
    extend(history, [[7, 8, 1], [2, 3, 4]], ended=[[True, False, False], [False, True, False]])
    assert actions_of(history) == [[2], [], [3, 6, 1, 4]]


def test_rows_that_only_reset_an_env_are_not_actions() -> None:
    history = Envs().history()
    ended, valid = [[True, False, False]] + [[False] * 3] * 2, [[True] * 3, [False, True, True], [True] * 3]
    extend(history, [[1, 2, 3], [4, 5, 6], [7, 8, 1]], ended, valid)
    assert actions_of(history) == [[7], [2, 5, 8], [3, 6, 1]]


def test_a_part_of_the_envs_may_be_extended() -> None:
    history = Envs().history()
    extend(history, [[1], [2]], first_env=1)
    assert actions_of(history) == [[], [1, 2], []]


def test_marked_is_the_state_at_the_start_of_the_rollout_even_if_workers_overwrite_it() -> None:
    envs = Envs()
    history = envs.history()
    history.mark()
    envs.episode += 1
    envs.obs += 10
    envs.mask[:] = False
    envs.tags["opponent"] += 1
    before, after = history.marked()[1], histories_now(history)[1]
    assert (before.episode, after.episode) == (5, 6)
    assert (before.obs[PLAIN].tolist(), after.obs[PLAIN].tolist()) == ([2, 3], [12, 13])
    assert before.mask is not None
    assert before.mask.all()
    assert (before.tags["opponent"], after.tags["opponent"]) == (2, 3)


def test_a_checkpoint_during_a_rollout_has_the_state_at_its_start() -> None:
    envs = Envs()
    history = envs.history()
    history.mark()
    envs.episode += 1
    assert history.state()["episode"][1] == 5
    extend(history, [[1], [2], [0]])
    assert history.state()["episode"][1] == 6


def test_a_checkpoint_restores_all_histories() -> None:
    envs = Envs()
    history = envs.history()
    extend(history, [[1, 2, 3], [4, 5, 6]], ended=[[False] * 3, [False, True, False]])
    state: dict[str, NDArray[Any]] = {name: array.copy() for name, array in history.state().items()}
    other = Envs().history()
    loaded = other.load(state)
    for one, expected in zip(loaded, histories_now(history), strict=True):
        assert one.episode == expected.episode
        assert one.actions.tolist() == expected.actions.tolist()
        assert one.obs[PLAIN].tolist() == expected.obs[PLAIN].tolist()
        assert one.mask is not None
        assert one.mask.tolist() == expected.mask.tolist()  # type: ignore[union-attr]
        assert one.tags == expected.tags
    extend(other, [[7, 8, 1]])
    assert actions_of(other) == [[1, 4, 7], [8], [3, 6, 1]]


def test_envs_that_start_a_new_episode_forget_their_actions() -> None:
    envs = Envs()
    history = envs.history()
    extend(history, [[1, 2, 3]])
    history.start_next_episodes([0, 2])
    history.forget([0, 2])
    assert envs.episode.tolist() == [5, 5, 7]
    assert actions_of(history) == [[], [2], []]
