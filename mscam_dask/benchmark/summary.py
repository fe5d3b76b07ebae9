"""From cells to rows and curves: means and standard deviations over runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from mscam_dask.benchmark.methods import METHODS
from mscam_dask.benchmark.published_scores import ROBUSTNESS, paper_scores
from mscam_dask.benchmark.results import (
    SCORES,
    CurveEntry,
    MeanStd,
    MethodEntry,
    RowEntry,
    TrialEntry,
)
from mscam_dask.benchmark.schedule import MethodRun, best_setting

__all__ = ["curves_of", "mean_std", "method_entry", "row_of"]


def mean_std(values: Sequence[float]) -> MeanStd:
    """Return mean and sample standard deviation (n − 1); null for too few values."""
    return MeanStd(
        mean=statistics.fmean(values) if values else None,
        std=statistics.stdev(values) if len(values) > 1 else None,
    )


def row_of(contest: MethodRun, found: Mapping[str, TrialEntry]) -> RowEntry:
    """Return the row of a contest whose cells have ended."""
    setting = best_setting(contest, found)
    keys = [contest.trial(setting, seed).key for seed in contest.seeds]
    entries = [found[key] for key in keys if key in found]
    good = [entry for entry in entries if entry.outcome == "ok"]
    reasons = [f"{one.outcome}: {one.reason}" for one in entries if one.outcome != "ok"]
    if len(entries) < len(keys):
        reasons.append(f"{len(keys) - len(entries)} other runs were not tried after that")
    scores = {
        name: mean_std([value for one in good if (value := one.scores.get(name)) is not None])
        for name in SCORES
    }
    scores["seconds"] = mean_std([one.seconds for one in good if one.seconds is not None])
    scores["peak_memory_bytes"] = mean_std(
        [float(one.peak_memory_bytes) for one in good if one.peak_memory_bytes is not None]
    )
    method = METHODS[contest.method]
    return RowEntry(
        dataset=contest.dataset.entry.name,
        method=contest.method,
        protocol=contest.protocol,
        parameters={**method.defaults, **setting},
        n_runs=len(keys),
        n_failed=len(keys) - len(good),
        scores=scores,
        paper=paper_scores(contest.dataset.entry.name, contest.method),
        reasons=tuple(dict.fromkeys(reasons)),
        note="the view was chosen with labels" if contest.view_is_chosen else "",
    )


def curves_of(rows: Sequence[RowEntry], shares: Mapping[str, float]) -> tuple[CurveEntry, ...]:
    """Return accuracy over the corrupted share for each method and protocol.

    Parameters
    ----------
    rows
    shares
        Data set to its share.
    """
    curves = []
    for method, protocol in dict.fromkeys((row.method, row.protocol) for row in rows):
        mine = [row for row in rows if (row.method, row.protocol) == (method, protocol)]
        known = ROBUSTNESS.get(method, {})
        curves.append(
            CurveEntry(
                method=method,
                protocol=protocol,
                corrupted=tuple(shares[row.dataset] for row in mine),
                mean=tuple(row.scores["accuracy"].mean for row in mine),
                std=tuple(row.scores["accuracy"].std for row in mine),
                paper=tuple(known.get(round(shares[row.dataset], 6)) for row in mine),
            )
        )
    return tuple(curves)


def method_entry(name: str) -> MethodEntry:
    """Return what the document says of a method."""
    method = METHODS[name]
    return MethodEntry(
        name=name,
        title=method.title,
        reference=method.reference,
        defaults=dict(method.defaults),
        grid={key: tuple(values) for key, values in method.grid.items()},
        dense=method.dense,
    )
