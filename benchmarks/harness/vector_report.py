"""Write the comparison of vector envs as a page and a picture, from the stored JSON alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import results

OURS, BARE, IN_STEP = "paceline", "bare", "bare-in-step"
CONTENDERS = {
    OURS: "paceline `make_vec`",
    "gymnasium-async": "Gymnasium AsyncVectorEnv",
    "gymnasium-async-pipes": "Gymnasium AsyncVectorEnv, `shared_memory=False`",
    "sb3-subproc": "SB3 SubprocVecEnv",
    "pufferlib-mp": "PufferLib 3.0 Multiprocessing",
    BARE: "bare loops, independent",
    IN_STEP: "bare loops, in step",
}
WORKLOADS = {
    "cartpole": "CartPole",
    "busy": "1 ms of CPU a step",
    "sleep": "2 ms of sleep a step",
    "image": "64x64x3 images",
}
LIMITS = {"busy": (BARE, IN_STEP), "sleep": (IN_STEP,)}
"""Upper bounds for any vector env, on workloads whose steps take long enough to compare with."""
TIMES_ASYNC = 5.0
"""Target over AsyncVectorEnv on CartPole with 32 envs."""
OF_THE_LIMIT = 0.95
"""Target as a share of the independent bare loops where a step burns 1 ms of CPU."""
TIMES_BEST = {("sleep", 32): 1.8}
"""Targets over the fastest other vector env; 1.0 for all other lines, because 8 envs that sleep are near the limit with
every library."""

Found = Mapping[str, Any]


def page(found: Found, machine: Found) -> str:
    """The whole comparison in markdown."""
    names = [name for name in CONTENDERS if any(name in line["rates"] for line in found["lines"])]
    rows, claims = [], []
    for line in found["lines"]:
        label = f"{WORKLOADS[line['workload']]}, {line['n_envs']} envs"
        cells = [_rate(line["rates"].get(name)) for name in names]
        best = _best_of_others(line)
        times = _ratio(line, OURS, best) if best else None
        rows.append([label, *cells, results.format_ratio(*times) if times else "-"])
        claims += _claims(label, line, best, judged=bool(machine["quiet"]))
    parts = [results.table(["steps/s", *(CONTENDERS[name] for name in names), "make_vec / best other"], rows), *claims]
    parts += [f"{CONTENDERS[name]}: not installed: {why}" for name, why in found["not_installed"].items()]
    parts += [
        f"{CONTENDERS[name]}, {line['workload']}, {line['n_envs']} envs: failed: {why}"
        for line in found["lines"]
        for name, why in line["failed"].items()
    ]
    parts += [
        f"- {WORKLOADS[line['workload']]}, {line['n_envs']} envs: {line['layouts'][OURS]}"
        for line in found["lines"]
        if OURS in line["layouts"]
    ]
    parts.append(
        f"Medians of {found['rounds']} alternating windows of {found['window_s']:g} s ± half the interquartile range; "
        "ratios are medians round by round. Random actions, no policy."
    )
    return "\n\n".join(parts)


def _claims(label: str, line: Found, best: str | None, *, judged: bool) -> list[str]:
    """Ratios of a line, with the targets if `judged`."""
    claims: list[tuple[str, tuple[float, float], float | None]] = []
    if OURS in line["rates"] and best:
        target = TIMES_BEST.get((line["workload"], line["n_envs"]), 1.0)
        claims.append((f"times {CONTENDERS[best]}, the fastest other", _ratio(line, OURS, best), target))
    if line["workload"] == "cartpole" and line["n_envs"] == 32 and "gymnasium-async" in line["rates"]:
        claims.append((f"times {CONTENDERS['gymnasium-async']}", _ratio(line, OURS, "gymnasium-async"), TIMES_ASYNC))
    if line["workload"] == "busy" and BARE in line["rates"]:
        claims.append(("of the independent bare loops", _ratio(line, OURS, BARE), OF_THE_LIMIT))
    if OURS in line["rates"] and IN_STEP in line["rates"]:
        claims.append(("of the bare loops in step", _ratio(line, OURS, IN_STEP), None))
    if best and IN_STEP in line["rates"]:
        within = f"times {CONTENDERS[best]} is the speed of bare loops in step"
        claims.append((within, _ratio(line, IN_STEP, best), None))
    return [
        f"- {label}: **{results.format_ratio(*times)}** {what}"
        + (f" (target {target:g}: {'met' if times[0] >= target else 'missed'})." if judged and target else ".")
        for what, times, target in claims
    ]


def _rate(rates: list[float] | None) -> str:
    return "{:,.0f} ± {:,.0f}".format(*results.median_spread(rates)) if rates else "-"


def _best_of_others(line: Found) -> str | None:
    rates = {name: float(np.median(each)) for name, each in line["rates"].items() if name not in (OURS, BARE, IN_STEP)}
    return max(rates, key=lambda name: rates[name]) if rates and OURS in line["rates"] else None


def _ratio(line: Found, above: str, below: str) -> tuple[float, float]:
    return results.ratio(line["rates"][above], line["rates"][below])


def picture(found: Found, path: Path) -> None:
    """One panel per line with steps/s, fastest on top."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    lines = found["lines"]
    figure, axes = plt.subplots(len(lines), 1, figsize=(9, 1.9 * len(lines)), squeeze=False, layout="constrained")
    for axis, line in zip(axes[:, 0], lines, strict=True):
        medians = {name: float(np.median(each)) for name, each in line["rates"].items()}
        names = sorted(medians, key=lambda name: medians[name])
        colours = [
            "tab:blue" if name == OURS else "lightgrey" if name in (BARE, IN_STEP) else "tab:grey" for name in names
        ]
        bars = axis.barh(
            [CONTENDERS[name].replace("`", "") for name in names], [medians[n] for n in names], color=colours
        )
        axis.bar_label(bars, fmt="{:,.0f}", padding=3)
        axis.set_title(f"{WORKLOADS[line['workload']]}, {line['n_envs']} envs: steps/s", fontsize=10)
        axis.margins(x=0.15)
    figure.savefig(path, dpi=110)
    plt.close(figure)
