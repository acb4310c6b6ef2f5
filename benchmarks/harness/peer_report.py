"""Write the comparison with other libraries as a page and a picture, from the stored JSON alone."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import results
from benchmarks.harness.peer_table import LIMIT, LIMIT_SHARE, OURS, PEERS, PIPELINED, WORKLOADS

Found = Mapping[str, Any]

INCONCLUSIVE = 0.10
"""A ratio with a larger relative spread is reported as inconclusive."""


def page(found: Found) -> str:
    """The whole comparison in markdown."""
    parts = ["# Paceline and its peers"]
    for name, workload in WORKLOADS.items():
        if name in found["workloads"]:
            parts += [f"## {workload.title}", _speed(name, found["workloads"][name])]
    if "solve" in found:
        parts += ["## CartPole solved", _solve(found["solve"])]
    if found["not_installed"]:
        parts += ["## Not measured", *(f"- {name}: {why}" for name, why in sorted(found["not_installed"].items()))]
    parts.append(
        "Steps/s: median of the windows ± half the interquartile range. Ratio: parallel Paceline (2 workers; auto if "
        "envs sleep) divided by the row, median of the rounds. Memory: largest proportional set size of all processes "
        "of the contestant, sampled between windows. Start-up: from starting the process to the end of the first "
        "iteration. Bare envs: a loop on each core, or a thread per env where envs sleep. Cores: CPU time of all "
        "processes of the contestant divided by the length of its windows. A ratio with a spread above 10 % is "
        "inconclusive: run again."
    )
    return "\n\n".join(parts) + "\n"


def fastest_peer(measured: Found) -> str | None:
    """Key of the fastest contestant of another library on the same Python env."""
    rates = {
        name: float(np.median(one["steps_per_s"]))
        for name, one in measured["contestants"].items()
        if one["counted"] and not name.startswith("paceline")
    }
    return max(rates, key=lambda name: rates[name]) if rates else None


def ratio(measured: Found, above: str, below: str) -> tuple[float, float]:
    """Median of `above / below` round by round, and its spread."""
    sides = (measured["contestants"][name]["steps_per_s"] for name in (above, below))
    return results.median_spread([one / other for one, other in zip(*sides, strict=True)])


def _speed(name: str, measured: Found) -> str:
    contestants: dict[str, Any] = measured["contestants"]
    rows = []
    for key in sorted(contestants, key=lambda key: -np.median(contestants[key]["steps_per_s"])):
        one = contestants[key]
        rate, spread = results.median_spread(one["steps_per_s"])
        times = "{:.2f} ± {:.2f}".format(*ratio(measured, OURS, key)) if OURS in contestants and key != OURS else ""
        rows.append(
            [
                _label(one),
                one["library"],
                f"{rate:,.0f} ± {spread:,.0f}",
                times,
                f"{np.median(one['cores']):.2f}",
                f"{one['peak_memory_mb']:,.0f}",
                f"{one['startup_s']:.1f}",
            ]
        )
    columns = ["", "library", "steps/s", "ratio", "cores", "memory MB", "start-up s"]
    parts = [results.table(columns, rows), *_verdicts(name, measured)]
    parts += [f"{PEERS[key].label}: failed. {why}" for key, why in measured["failed"].items()]
    windows = f"{measured['rounds']} alternating windows of at least {measured['window_s']:g} s each."
    return "\n\n".join([*parts, f"{windows} {_conditions(measured['machine'])}"])


def _label(one: Found) -> str:
    return one["label"] + ("" if one["counted"] else " (not counted)")


def _verdicts(name: str, measured: Found) -> list[str]:
    verdicts = []
    rival, calm = fastest_peer(measured), measured["machine"]["quiet"]  # a busy machine meets or misses no target
    if rival is not None and OURS in measured["contestants"]:
        label, target = measured["contestants"][rival]["label"], WORKLOADS[name].target
        verdicts.append(_verdict(f"the fastest peer ({label})", ratio(measured, OURS, rival), target if calm else None))
        if PIPELINED in measured["contestants"]:
            ahead = ratio(measured, PIPELINED, rival)
            verdicts.append(f"With --pipeline {_verdict('the same peer', ahead, target if calm else None)}")
    if rival is not None and {OURS, LIMIT} <= set(measured["contestants"]):
        share = ratio(measured, OURS, LIMIT)
        share_target = LIMIT_SHARE if name == "busy" and calm else None
        verdicts.append(_verdict("the speed of bare envs", share, share_target))
        verdicts.append(f"Bare envs reach {_verdict('the fastest peer', ratio(measured, LIMIT, rival), None)}")
    if {OURS, "paceline-sequential"} <= set(measured["contestants"]):
        own_target = 1.7 if name == "cartpole" and calm else None
        verdicts.append(_verdict("sequential Paceline", ratio(measured, OURS, "paceline-sequential"), own_target))
        if PIPELINED in measured["contestants"]:
            ahead = ratio(measured, PIPELINED, "paceline-sequential")
            verdicts.append(f"With --pipeline {_verdict('sequential Paceline', ahead, own_target)}")
    return verdicts


def _verdict(other: str, value: tuple[float, float], target: float | None) -> str:
    middle, spread = value
    judged = "" if target is None else f" (target {target:g}: {'met' if middle >= target else 'missed'})"
    noise = " Inconclusive: run again." if spread > INCONCLUSIVE * middle else ""
    return f"**{middle:.2f} ± {spread:.2f}** times {other}{judged}.{noise}"


def _solve(solved: Found) -> str:
    rows, medians = [], {}
    for key, one in solved["contestants"].items():
        walls = [np.inf if wall is None else wall for wall in one["seconds"]]
        medians[key] = float(np.median(walls))
        times = ", ".join("not" if wall is None else f"{wall:.1f}" for wall in one["seconds"])
        steps = ", ".join("-" if count is None else f"{count / 1000:.0f}k" for count in one["steps"])
        rows.append([one["label"], f"{medians[key]:.1f}", times, steps])
    parts = [results.table(["", "median s", "seconds by seed", "steps by seed"], rows)]
    rivals = [value for key, value in medians.items() if not key.startswith("paceline")]
    if OURS in medians and np.isfinite(min(rivals, default=np.inf)):
        share = medians[OURS] / min(rivals)
        judged = f" (target 0.5: {'met' if share <= 0.5 else 'missed'})" if solved["machine"]["quiet"] else ""
        parts.append(f"**{share:.2f}** of the fastest peer's time{judged}.")
    parts.append(
        f"Seconds from the start of the process until the last 100 episodes have a mean of {solved['target']:g}; "
        f"at most {solved['limit_s']:g} s. {_conditions(solved['machine'])}"
    )
    return "\n\n".join(parts)


def _conditions(machine: Found) -> str:
    state = "" if machine["quiet"] else " **Other programs were running: measure again.**"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}; "
        f"{results.describe_load(machine)}{state}\n\n`{machine['command']}`"
    )


def picture(found: Found, path: Path) -> None:
    """One panel per workload with steps/s, fastest on top, and one panel with the time to solve CartPole."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in WORKLOADS if name in found["workloads"]]
    panels = len(names) + ("solve" in found)
    if not panels:
        return
    most = max([len(found["workloads"][name]["contestants"]) for name in names], default=4)
    height = max(2.5, 0.32 * most + 1.2)
    figure, axes = plt.subplots(
        (panels + 1) // 2, min(panels, 2), figsize=(13, height * ((panels + 1) // 2)), squeeze=False
    )
    flat = list(axes.flat)
    for axis, name in zip(flat, names, strict=False):
        contestants = found["workloads"][name]["contestants"]
        rates = {_label(one): results.median_spread(one["steps_per_s"]) for one in contestants.values()}
        _bars(axis, rates, WORKLOADS[name].title, "steps/s", best=max)
    if "solve" in found:
        walls = {
            one["label"]: results.median_spread([found["solve"]["limit_s"] if s is None else s for s in one["seconds"]])
            for one in found["solve"]["contestants"].values()
        }
        _bars(flat[len(names)], walls, "CartPole solved", "seconds from process start", best=min)
    for axis in flat[panels:]:
        axis.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _bars(axis: Any, values: Mapping[str, tuple[float, float]], title: str, unit: str, *, best: Any) -> None:
    labels: Sequence[str] = sorted(values, key=lambda label: values[label][0], reverse=best is min)
    of_ours = {"paceline": "tab:orange", "bare": "tab:gray"}
    colours = [of_ours.get(re.split(r"\W", label)[0], "tab:blue") for label in labels]
    middles, spreads = zip(*(values[label] for label in labels), strict=True)
    axis.barh(
        range(len(labels)),
        middles,
        xerr=spreads,
        color=colours,
        height=0.7,
        error_kw={"elinewidth": 1.0, "ecolor": "0.4"},
    )
    for row, (middle, spread) in enumerate(zip(middles, spreads, strict=True)):
        text = f" {middle:,.0f}" if middle >= 100 else f" {middle:.1f}"
        axis.text(middle + spread, row, text, va="center", fontsize=8)  # right of the error bar
    names = [textwrap.fill(label, 36) for label in labels]  # long labels would leave no room for the bars
    axis.set_yticks(range(len(labels)), names)
    axis.set_title(textwrap.fill(title, 44), loc="left", fontsize=10)
    axis.set_xlabel(unit)
    axis.locator_params(axis="x", nbins=5)
    axis.margins(x=0.15)
    axis.spines[["top", "right"]].set_visible(False)
