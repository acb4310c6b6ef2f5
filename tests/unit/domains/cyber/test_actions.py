"""The meaning of the 145 action numbers."""

from __future__ import annotations

import pytest
from tests.unit.domains.cyber.playing import action_name

from paceline.domains.cyber.actions import ACTION_HOST, ACTIONS, HOST_TYPE, HOSTS, IS_FIX, TYPES


@pytest.mark.parametrize(
    ("action", "name"),
    [
        (0, "Sleep"),
        (1, "Monitor"),
        (2, "Analyse Defender"),
        (15, "Remove Defender"),
        (28, "DecoyApache Defender"),
        (53, "DecoyFemitter User4"),
        (54, "DecoyHaraka Defender"),
        (67, "DecoySmss Defender"),
        (80, "DecoySSHD Defender"),
        (93, "DecoySvchost Defender"),
        (106, "DecoyTomcat Defender"),
        (119, "DecoyVsftpd Defender"),
        (139, "Restore Op_Server0"),
        (144, "Restore User4"),
    ],
)
def test_names(action: int, name: str) -> None:
    assert action_name(action) == name


def test_fixes_are_remove_and_restore() -> None:
    assert [a for a in range(ACTIONS) if IS_FIX[a]] == [*range(15, 28), *range(132, 145)]
    assert ACTION_HOST[IS_FIX].tolist() == [*range(13), *range(13)]


def test_a_host_s_type_is_in_its_name() -> None:
    for host, kind in zip(HOSTS, HOST_TYPE, strict=True):
        assert host.lower().startswith(TYPES[kind])
