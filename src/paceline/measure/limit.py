"""Names what takes most of the time of a run: what to change first to make it faster."""

from __future__ import annotations

from collections.abc import Mapping

WORK = {
    "env": "stepping envs",
    "inference": "choosing actions",
    "collect": "collecting",
    "wait": "waiting for workers",
    "learn": "learning",
    "sync": "synchronising",
    "eval": "evaluating",
    "checkpoint": "writing checkpoints",
    "record": "writing the log",
    "other": "other work",
}
"""The phases of the driver and the activities of workers, in words."""
LEAST = 0.05
"""Smaller shares are not mentioned."""


def limited_by(shares: Mapping[str, float], worker_shares: Mapping[str, float]) -> str:
    """Return what takes most of the time, with its share, and the two next; empty if no phase is known.

    If that is waiting for workers, it is what these spend most of their time on, unless they are idle even longer.

    Args:
        shares: Share of the driver's time by phase.
        worker_shares: Share of the average worker's time by activity; empty without workers.
    """
    if not shares:
        return ""
    whose = "its"
    if max(shares, key=shares.__getitem__) == "wait" and worker_shares:
        busy = {name: share for name, share in worker_shares.items() if name != "idle"}
        if busy and max(busy.values()) >= worker_shares.get("idle", 0.0):
            shares, whose = busy, "its workers'"
    (first, share), *rest = sorted(shares.items(), key=lambda item: -item[1])
    others = ", ".join(f"{WORK.get(name, name)} {part:.0%}" for name, part in rest[:2] if part >= LEAST)
    return f"{WORK.get(first, first)} ({share:.0%} of {whose} time{'; ' + others if others else ''})"
