"""Statistics of the task and of learning that panel, log, summary and `compare` show, and how each is written.

A run has those of its algorithm and env: DQN has epsilon and a replay buffer, self-play has Elo and win rates, a reward
shaper has its parts. Everything here goes by the tags of progress.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

_PARTS, _MEAN = "rollout/", "_mean"
_WIN_RATE, _AGAINST = "train/win_rate_", "win rate against "
_NO_PARTS = ("rollout/ep_rew_mean", "rollout/ep_len_mean")


@dataclass(frozen=True, slots=True)
class Statistic:
    """How one statistic is shown."""

    label: str
    show: Callable[[float], str]
    of_task: bool
    """Whether it says how well the task is done, and not how learning goes."""

    def __call__(self, value: float) -> str:
        """Return label and value."""
        return f"{self.label} {self.show(value)}"


def _short(value: float) -> str:
    return f"{value:.3g}"


_SHOWN = {
    "rollout/success_rate": Statistic("success rate", "{:.0%}".format, True),
    "train/elo": Statistic("Elo", "{:,.0f}".format, True),
    "train/loss": Statistic("loss", _short, False),
    "train/explained_variance": Statistic("explained variance", _short, False),
    "train/epsilon": Statistic("epsilon", _short, False),
    "train/mean_q": Statistic("mean Q", _short, False),
    "train/buffer_size": Statistic("replay buffer", "{:,.0f}".format, False),
}


def statistics(tags: Iterable[str]) -> dict[str, Statistic]:
    """Return how to show those of the tags that are shown, in the order in which they are."""
    tags = list(tags)
    found = {tag: one for tag, one in _SHOWN.items() if tag in tags}
    for tag in tags:
        if tag.startswith(_WIN_RATE):
            found[tag] = Statistic(_AGAINST + tag.removeprefix(_WIN_RATE), "{:.0%}".format, True)
        elif tag.startswith(_PARTS) and tag.endswith(_MEAN) and tag not in _NO_PARTS:
            found[tag] = Statistic(tag[len(_PARTS) : -len(_MEAN)], _short, True)
    return dict(sorted(found.items(), key=lambda item: not item[1].of_task))


def written(values: Mapping[str, float], *, of_task: bool) -> list[str]:
    """Return label and value of the statistics of the task, or of learning; win rates together, to save width."""
    texts: list[str] = []
    for tag, one in statistics(values).items():
        text = one(values[tag])
        if texts and text.startswith(_AGAINST) and texts[-1].startswith(_AGAINST):
            texts[-1] += ", " + text.removeprefix(_AGAINST)
        elif one.of_task == of_task:
            texts.append(text)
    return texts
