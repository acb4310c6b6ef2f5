"""Renders a game of network defence as text, for `render_mode="ansi"`."""

from __future__ import annotations

from paceline.domains.cyber.actions import HOSTS
from paceline.domains.cyber.network import Network

_LEVELS = ("", "user", "privileged")
_ACTIVITY = {(0, 0): "", (1, 0): "scan", (1, 1): "exploit"}
_BELIEF = {(0, 0): "", (1, 0): "unknown", (0, 1): "user", (1, 1): "privileged"}


def table(network: Network, row: int) -> str:
    """A table of the hosts of one game: true state, activity of the last step and the defender's belief."""
    levels = network.true_state()[row]
    bits = network.observe()[row].astype(int).reshape(-1, 4).tolist()
    lines = [f"step {network.steps[row]}{', OTService is down' if network.ot_stopped()[row] else ''}"]
    lines.append(f"{'host':<12} {'truth':<11} {'activity':<9} belief")
    for host, level, (a, b, c, d) in zip(HOSTS, levels, bits, strict=True):
        lines.append(f"{host:<12} {_LEVELS[level]:<11} {_ACTIVITY[a, b]:<9} {_BELIEF[c, d]}".rstrip())
    return "\n".join(lines)
