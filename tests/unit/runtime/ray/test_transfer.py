"""Arrays that driver and nodes exchange, packed into one buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paceline.runtime.ray.transfer import pack, unload, unpack


def test_unpack_restores_what_pack_stored_also_for_views_of_variable_size() -> None:
    def views(arrays: dict[str, Any]) -> Iterator[Any]:
        yield arrays["flag"]
        yield arrays["count"]
        yield arrays["rows"][:, 1 : 1 + int(arrays["count"][0])]

    there = {"flag": np.array([True]), "count": np.array([2]), "rows": np.arange(12.0).reshape(3, 4)}
    here = {"flag": np.array([False]), "count": np.array([0]), "rows": np.zeros((3, 4))}
    parcel = pack(views(there))
    assert parcel.nbytes == 1 + 8 + 6 * 8
    unpack(parcel, views(here))
    assert here["rows"].tolist() == [[0, 1, 2, 0], [0, 5, 6, 0], [0, 9, 10, 0]]
    for wrong in (parcel[:-1], np.append(parcel, parcel[:1])):
        with pytest.raises(ValueError, match="transfer"):
            unpack(wrong, views(here))


def test_unload_copies_arrays_and_refuses_other_shapes_or_numbers() -> None:
    there, here = [np.array([3]), np.arange(4.0)], [np.array([0]), np.zeros(4)]
    unload(there, iter(here))
    assert [array.tolist() for array in here] == [[3], [0, 1, 2, 3]]
    for wrong in (there[:1], [*there, there[0]], [there[0], np.array([1.0])]):
        with pytest.raises(ValueError, match="transfer"):
            unload(wrong, iter(here))
