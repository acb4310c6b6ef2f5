"""`GroupReader`: extras of a native vector env, in every reading interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.envs.extras import Readings
from paceline.envs.vector_extras import GroupReader
from paceline.errors import EnvError
from paceline.spec import Extra

EXTRAS = {
    "place": Extra(read="read_place"),
    "second": Extra(every=2),
    "result": Extra(every="episode"),
}
YES, NO = np.array([True, True]), np.array([False, False])


class Vector:
    place = np.zeros(2, np.float32)

    def read_place(self) -> Any:
        return self.place


def make(extras: dict[str, Extra] = EXTRAS) -> tuple[Any, Readings, GroupReader]:
    env: Any = Vector()
    readings = Readings(extras, 4, str)
    return env, readings, GroupReader(env, extras, readings, slice(2, 4), "vector env of group 1")


def infos(value: float) -> dict[str, Any]:
    return {"second": np.full(2, value, np.float32), "result": np.full(2, 10 * value, np.float32)}


def test_extras_are_read_when_due_into_the_columns_of_the_group() -> None:
    env, readings, reader = make()
    reader.began(infos(1.0))
    assert readings.now["second"].tolist() == [0, 0, 1, 1]
    for value, second in ((2.0, 1.0), (3.0, 3.0), (4.0, 3.0)):
        env.place = np.array([value, -value], np.float32)
        readings.before_step()
        reader.stepped(infos(value), NO, own_reset=False)
        readings.settle()
        assert readings.now["place"].tolist() == [0, 0, value, -value]
        assert readings.now["second"][2:].tolist() == [second, second]
        assert readings.now["result"].tolist() == [0] * 4
    readings.before_step()
    reader.stepped(infos(5.0), np.array([False, True]), own_reset=False)
    assert readings.reached["result"].tolist() == [0, 0, 0, 50], "at the end of the episode"


def test_a_reset_starts_the_interval_again_for_the_chosen_envs() -> None:
    _, readings, reader = make()
    reader.began(infos(1.0))
    reader.stepped(infos(2.0), NO, own_reset=False)
    reader.began(infos(3.0), np.array([True, False]))
    assert readings.now["second"][2:].tolist() == [3, 1]
    reader.stepped(infos(4.0), NO, own_reset=False)
    assert readings.reached["second"][2:].tolist() == [0, 4], "the second step of one env, the first of the other"


def test_with_same_step_autoreset_the_ended_episode_is_read_from_final_info() -> None:
    _, readings, reader = make({"result": EXTRAS["result"], "each": Extra()})
    given = {"each": np.array([1.0, 2.0]), "final_info": {"result": np.array([7.0, 8.0]), "each": np.array([3.0, 4.0])}}
    reader.stepped(given, np.array([False, True]), own_reset=True)
    assert readings.reached["result"][2:].tolist() == [0, 8]
    assert readings.reached["each"][2:].tolist() == [1, 4]
    with pytest.raises(EnvError, match=r"extra 'result' must be in infos\['final_info'\]"):
        reader.stepped({"each": np.zeros(2), "final_info": {}}, YES, own_reset=True)


def test_missing_and_misshaped_extras_name_the_group() -> None:
    env, _, reader = make()
    with pytest.raises(EnvError, match="vector env of group 1: extra 'second' is not in infos"):
        reader.began({})
    env.place = np.zeros(3)
    with pytest.raises(EnvError, match=r"extra 'place' must have shape \(2,\) \(got \(3,\)\)"):
        reader.began(infos(0.0))
