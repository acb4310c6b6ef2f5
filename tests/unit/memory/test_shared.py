"""The arena: one shared-memory segment, allocated in full or refused."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ConfigError
from paceline.memory import shared
from paceline.memory.shared import ALIGN, Arena, Field

DTYPES = ("bool", "uint8", "int8", "float32", "int64", "float64")


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(DTYPES), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_fields_are_aligned_zeroed_and_do_not_overlap(described: list[tuple[list[int], str, bool]]) -> None:
    fields = [Field.of(f"f{i}", shape, dtype, sparse=sparse) for i, (shape, dtype, sparse) in enumerate(described)]
    arena = Arena.create(fields)
    try:
        for field in fields:
            array = arena[field.name]
            assert array.shape == field.shape
            assert array.dtype == field.dtype
            assert array.nbytes == field.nbytes
            assert array.ctypes.data % ALIGN == 0 or not array.size
            assert not array.any()
            assert array.flags.writeable
        for i, field in enumerate(fields):
            arena[field.name].reshape(-1).view(np.uint8)[...] = i + 1
        for i, field in enumerate(fields):
            assert (arena[field.name].reshape(-1).view(np.uint8) == i + 1).all(), "a neighbour wrote into this field"
    finally:
        arena.close()


def test_repeated_names_are_refused() -> None:
    with pytest.raises(ValueError, match="repeat"):
        Arena.create([Field.of("a", (1,), "int8"), Field.of("a", (2,), "int8")])


def double(arena: Arena, index: int) -> None:
    """Runs in another process."""
    arena["numbers"][index] *= 2
    arena["late"][index, -1] = index + 1
    arena.close()


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_every_start_method_shares_the_same_bytes(method: str) -> None:
    fields = [Field.of("numbers", (3,), "float64"), Field.of("late", (3, 1 << 20), "uint8", sparse=True)]
    arena = Arena.create(fields)
    arena["numbers"][...] = [1.5, 2.5, 3.5]
    ctx: Any = multiprocessing.get_context(method)
    processes = [ctx.Process(target=double, args=(arena, i)) for i in (0, 2)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
        assert arena["numbers"].tolist() == [3.0, 2.5, 7.0]
        assert arena["late"][:, -1].tolist() == [1, 0, 3]
    finally:
        arena.close()


def test_cannot_be_pickled_outside_of_a_process_start() -> None:
    arena = Arena.create([Field.of("a", (1,), "int8")])
    try:
        with pytest.raises(RuntimeError):
            arena.__reduce__()
    finally:
        arena.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_sparse_fields_take_memory_only_where_they_are_written() -> None:
    size = 1 << 30
    arena = Arena.create([Field.of("dense", (1 << 20,), "uint8"), Field.of("sparse", (size,), "uint8", sparse=True)])
    try:
        taken = os.fstat(int(arena._handle)).st_blocks * 512
        assert 1 << 20 <= taken < 2 << 20, "the dense field is reserved and the sparse one is not"
        arena["sparse"][5 << 20] = 1
        assert os.fstat(int(arena._handle)).st_blocks * 512 - taken <= 4 << 20  # a huge page at most
        assert arena.nbytes > size
    finally:
        arena.close()


def test_shortage_is_an_error_with_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Free:
        available = 3 << 20

    monkeypatch.setattr(psutil, "virtual_memory", Free)
    fields = [Field.of("small", (8,), "float32"), Field.of("obs/pixels", (100, 84, 84, 4), "uint8")]
    with pytest.raises(ConfigError, match=r"obs/pixels \(100, 84, 84, 4\), 2\.7 MB") as caught:
        Arena.create([*fields, Field.of("more", (1 << 20,), "uint8")])
    assert "needs 3.7 MB" in str(caught.value)
    assert "3.0 MB are free" in str(caught.value)
    assert "--n-envs" in str(caught.value)
    # A sparse field may promise more than there is.
    Arena.create([Field.of("sparse", (4 << 20,), "uint8", sparse=True)]).close()


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files, which a memfd is")
def test_a_reservation_that_fails_is_an_error_and_leaves_no_descriptor() -> None:
    # In a process of its own, since the limit stays: what the kernel refuses must be an exception, not a signal.
    script = """
import os, resource, signal
from paceline.errors import ConfigError
from paceline.memory.shared import Arena, Field
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
before = len(os.listdir("/proc/self/fd"))
try:
    Arena.create([Field.of("block", (8 << 20,), "uint8")])
except ConfigError as error:
    print(error)
assert len(os.listdir("/proc/self/fd")) == before
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "8.0 MB could not be reserved" in done.stdout


def test_close_is_idempotent_gives_the_descriptor_back_and_views_survive_it() -> None:
    gc.collect()
    before = set(os.listdir("/proc/self/fd")) if sys.platform == "linux" else set()
    arena = Arena.create([Field.of("a", (1000,), "float64")])
    view = arena["a"][10:20]
    view[...] = 7.0
    arena.close()
    arena.close()
    del arena
    gc.collect()
    if before:
        # mmap keeps a duplicate of its own until the last view goes.
        assert len(set(os.listdir("/proc/self/fd")) - before) <= 1
    assert view.sum() == 70.0
    view[0] = 8.0
    del view
    gc.collect()
    if before:
        assert set(os.listdir("/proc/self/fd")) == before


def test_offsets_leave_room_for_empty_fields() -> None:
    fields = (Field.of("none", (0, 4), "float32"), Field.of("one", (), "int64"), Field.of("many", (65,), "uint8"))
    assert shared._offsets(fields) == [0, 64, 128]
