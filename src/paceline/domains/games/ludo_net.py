"""A network for Ludo that evaluates the board after each legal move (the afterstate), with shared weights.

    obs [N, 128] -- squares, dice --> L boards after a legal move, as counts [L, 182]
                                      -- relu [L, 128] -- relu [L, 32] -- tanh: value of each [L] --> [N, 12]

The value of an action is the value of the board it leads to. A flat network must learn this twelve times, once per die
and piece; here one evaluation of a board serves every move that leads to it. Features that follow from the rules, such
as distances between pieces and squares where a piece can be captured, are computed and need not be learned.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.domains.games.ludo import Ludo
from paceline.domains.games.ludo_words import HALF_LAP, SAFE, START
from paceline.errors import ConfigError

_YARD, _HOME = 0, 57
"""Places: 0 is the yard, 57 is home. A place is the square in its owner's count plus 1."""
_PLACES = _HOME + 1
_DIE = 6
_REACH = 12
"""Largest distance between pieces that is a feature: two dice."""

# First column of each group of features. A feature is a count.
_MINE, _THEIRS = 0, _PLACES  # own and opponent's pieces in each place
_CHASED = 2 * _PLACES  # pairs with the opponent's piece 1 to 12 behind an own piece that can be captured
_CHASING = _CHASED + _REACH  # pairs with an own piece 1 to 12 behind an opponent's piece that can be captured
_DICE = _CHASING + _REACH  # remaining dice of each number that can be played
_ROLLS = _DICE + _DIE  # 1 if the mover rolls again
_PASSES = _ROLLS + 1  # 1 if the turn is over
_MANY = _PASSES + 1  # one-hot codes (0 to 4) of six numbers of pieces
_COLUMNS = _MANY + 6 * 5
_NOWHERE = _COLUMNS
"""Extra column for what is not a feature; removed from the result."""


def _pairs() -> NDArray[np.int64]:
    """[places * places] the column of a pair of an own and an opponent's piece, indexed by their places."""
    column = np.full((_PLACES, _PLACES), _NOWHERE)
    for place in range(1, 52):
        if not SAFE[place - 1 + START]:
            same = place + (HALF_LAP if place <= HALF_LAP else -HALF_LAP)  # place of an opponent's piece on this square
            for behind in range(1, min(_REACH, same - 1) + 1):
                column[place, same - behind] = _CHASED + behind - 1
                column[same - behind, place] = _CHASING + behind - 1
    return column.reshape(-1)


class LudoNet(nn.Module):
    """Policy and value network for `train ppo` on `paceline/Ludo-v0`.

    The logit of an action is the value of the board after it, times a learned sharpness. The policy gradient changes
    only the sharpness. The value loss trains the values of the boards, because the value of the state is their mean
    under the policy.

    Args:
        observation_space: Observation space of the env.
        action_space: Action space of the env.
        param_size: Number of actions.

    Raises:
        ConfigError: The spaces are not those of Ludo.
    """

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], param_size: int) -> None:
        super().__init__()
        if observation_space.shape != (Ludo.obs_size,) or param_size != Ludo.actions:
            raise ConfigError(
                f"policy LudoNet: needs observations of {Ludo.obs_size} numbers and {Ludo.actions} actions "
                f"(got {observation_space} and {action_space}). Use it with paceline/Ludo-v0."
            )
        self.first, self.second, self.head = nn.Linear(_COLUMNS, 128), nn.Linear(128, 32), nn.Linear(32, 1)
        for layer, gain in ((self.first, 1.0), (self.second, math.sqrt(2)), (self.head, 0.1)):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)
        # Initially, the better of two boards whose win rates differ by 1 % is chosen with odds of about 20 to 1.
        self.log_sharpness = nn.Parameter(torch.tensor(5.0))
        self._pairs = torch.from_numpy(_pairs())  # not a buffer: it is the same in every net

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [N, 12], 0 for illegal actions, and values [N] between -1 and 1."""
        legal = obs[:, 40:124:7] > 0.5
        row, action = legal.nonzero(as_tuple=True)
        hidden = torch.relu(self.second(torch.relu(self.first(self.after(obs, row, action)))))
        board_values = torch.tanh(self.head(hidden).squeeze(1))
        action_values = board_values.new_zeros(legal.shape).index_put((row, action), board_values)
        logits = action_values.detach() * self.log_sharpness.exp()
        probabilities = torch.softmax(logits.detach().masked_fill(~legal, -1e9), 1)
        return logits, (probabilities * action_values).sum(1)

    def after(self, obs: Tensor, row: Tensor, action: Tensor) -> Tensor:
        """Features of the boards after actions.

        Args:
            obs: [N, 128] observations of `Ludo`.
            row: [L] row of the observation.
            action: [L] a legal action in that row.

        Returns:
            [L, 182] counts, in the columns above.
        """
        places = torch.round(_HOME * obs[:, 0:40:5]).long()[row]  # [L, 8]
        offer = obs[:, 40:124].reshape(-1, Ludo.actions, 7)[row, action]  # [L, 7]
        captures, landing = offer[:, 1] > 0.5, _HOME - torch.round(56 * offer[:, 6]).long()
        mine = places[:, :4].scatter(1, (action % 4)[:, None], landing[:, None])
        square = torch.where(landing <= HALF_LAP, landing + HALF_LAP, landing - HALF_LAP)
        caught = (places[:, 4:] == square[:, None]) & captures[:, None]
        caught &= caught.cumsum(1) == 1  # one piece per landing
        theirs = places[:, 4:].masked_fill(caught, _YARD)

        dice = torch.round(6 * obs[:, 124:127]).long()[row].scatter(1, (action // 4)[:, None], 0)[:, :, None]
        moves = torch.where(mine[:, None] == _YARD, dice == _DIE, mine[:, None] + dice <= _HOME)  # [L, 3, 4]
        playable = moves.any(2) & (dice[:, :, 0] > 0)
        rolls = captures | (landing == _HOME)
        passes = ~rolls & ~playable.any(1)

        pairs = self._pairs.to(obs.device)[_PLACES * mine[:, :, None] + theirs[:, None]]  # [L, 4, 4]
        endangered = ((pairs >= _CHASED) & (pairs < _CHASED + _DIE)).any(2)
        in_reach = ((pairs >= _CHASING) & (pairs < _CHASING + _DIE)).any(1)
        sets = (endangered, in_reach, mine == _YARD, theirs == _YARD, mine == _HOME, theirs == _HOME)
        many = torch.stack(sets, 1).sum(2) + torch.arange(_MANY, _COLUMNS, 5, device=obs.device)

        column = torch.cat(
            (
                mine + _MINE,
                theirs + _THEIRS,
                pairs.flatten(1),
                torch.where(playable, dice[:, :, 0] + (_DICE - 1), _NOWHERE),
                torch.where(rolls, _ROLLS, _NOWHERE)[:, None],
                torch.where(passes, _PASSES, _NOWHERE)[:, None],
                many,
            ),
            1,
        )
        counts = obs.new_zeros(len(row), _COLUMNS + 1)
        counts.scatter_add_(1, column, obs.new_ones(1, 1).expand(column.shape))
        return counts[:, :_COLUMNS]
