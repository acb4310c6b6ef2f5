from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.domains.games.playing import begun, rows_of
from tests.unit.domains.games.slow import SAFE, SlowLudo
from tests.unit.domains.games.test_ludo import COUNTS, arranged
from torch import Tensor

from paceline.domains.games.env import GameEnv
from paceline.domains.games.ludo import Ludo
from paceline.domains.games.ludo_net import LudoNet
from paceline.errors import ConfigError
from paceline.nets.policy import build_policy
from paceline.spec import EnvSpec

POLICY = "paceline.domains.games.ludo_net:LudoNet"


def a_net(seed: int = 0) -> LudoNet:
    env = GameEnv("ludo")
    torch.manual_seed(seed)
    return LudoNet(env.observation_space, env.action_space, Ludo.actions)


def seen(game: Ludo) -> Tensor:
    return torch.from_numpy(game.observe(rows_of(game)))


def distances(slow: SlowLudo, sides: list[list[int]], chased: int) -> list[list[int]]:
    """For each piece of a side that can be captured, the distances (up to 12) of opposing pieces behind it."""
    found = []
    for mine in sides[chased]:
        theirs = [n for n in range(51) if slow.same_square(mine, n)] if mine not in SAFE else []
        found.append([n - other for n in theirs for other in sides[1 - chased] if other >= 0 and 1 <= n - other <= 12])
    return found


def counts_after(slow: SlowLudo, action: int) -> list[float]:
    """The 182 counts, from the rules."""
    slot, piece = divmod(action, 4)
    rest = [die for place, die in enumerate(slow.hand[:3]) if place != slot]
    sides = [list(slow.counts[slow.mover]), list(slow.counts[1 - slow.mover])]
    landing = slow.target(sides[0][piece], slow.hand[slot])
    assert landing is not None
    sides[0][piece] = landing
    victim = slow.captured(landing)
    if victim is not None:
        sides[1][victim] = -1
    out = [float(side.count(count)) for side in sides for count in range(-1, 57)]
    behind = [distances(slow, sides, chased) for chased in (0, 1)]
    out += [float(sum(near.count(far) for near in side)) for side in behind for far in range(1, 13)]
    playable = [die for die in rest if any(slow.target(count, die) is not None for count in sides[0])]
    out += [float(playable.count(die)) for die in range(1, 7)]
    rolls = victim is not None or landing == 56
    out += [float(rolls), float(not rolls and not playable)]
    many = [sum(any(far <= 6 for far in near) for near in side) for side in behind]
    many += [side.count(count) for count in (-1, 56) for side in sides]
    return out + [float(number == n) for number in many for n in range(5)]


@given(st.tuples(COUNTS, COUNTS), st.integers(0, 1), st.lists(st.integers(1, 6), min_size=1, max_size=5))
@settings(max_examples=150)
def test_boards_after_a_move_follow_the_rules(counts: tuple[list[int], list[int]], mover: int, hand: list[int]) -> None:
    game, slow = arranged(1, list(counts), mover, hand)
    actions = sorted(slow.legal())
    assume(actions)
    after = a_net().after(seen(game), torch.zeros(len(actions), dtype=torch.long), torch.tensor(actions))
    np.testing.assert_array_equal(after, [counts_after(slow, action) for action in actions])


def test_equal_boards_have_equal_values() -> None:
    game, _ = arranged(1, [[-1, -1, 12, 40], [3, 30, 30, 56]], 0, [6])
    other, _ = arranged(1, [[40, -1, 12, -1], [30, 56, 3, 30]], 0, [6])
    logits, value = a_net()(torch.cat((seen(game), seen(other))))
    assert logits[0, 0] == logits[0, 1], "either piece leaves the yard"
    torch.testing.assert_close(logits[0, :4], logits[1, [1, 3, 2, 0]])
    torch.testing.assert_close(value[0], value[1])
    assert len(set(logits[0, 1:4].tolist())) == 3


def test_the_value_is_the_mean_of_action_values_under_the_policy() -> None:
    net, game = a_net(), begun(Ludo, 64)
    assert isinstance(game, Ludo)
    legal = torch.from_numpy(game.legal(rows_of(game)))
    logits, value = net(seen(game))
    worth = logits / net.log_sharpness.exp()
    assert not logits[~legal].any()
    chances = torch.softmax(logits.masked_fill(~legal, -torch.inf), 1)
    torch.testing.assert_close(value, (chances * worth).sum(1))


def test_the_value_loss_trains_the_boards_and_the_policy_gradient_only_the_sharpness() -> None:
    net, game = a_net(), begun(Ludo, 16)
    assert isinstance(game, Ludo)
    logits, value = net(seen(game))
    logits.square().sum().backward(retain_graph=True)
    assert {name for name, weight in net.named_parameters() if weight.grad is not None} == {"log_sharpness"}
    net.log_sharpness.grad = None
    value.sum().backward()
    judging = {name for name, weight in net.named_parameters() if weight.grad is not None}
    assert judging == {name for name, _ in net.named_parameters()} - {"log_sharpness"}


def test_other_spaces_than_ludos_are_refused() -> None:
    env = GameEnv("tic_tac_toe")
    spec = EnvSpec.of(env.observation_space, env.action_space)
    with pytest.raises(
        ConfigError, match=r"^policy LudoNet: needs observations of 128 numbers .* Use it with paceline/Ludo-v0\.$"
    ):
        build_policy(POLICY, spec)
