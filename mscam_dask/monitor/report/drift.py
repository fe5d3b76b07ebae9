"""What a report says of the run before: sizes of the clusters then and now, samples that moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from mscam_dask.monitor.report.content import FileLink
from mscam_dask.monitor.report.formatting import count, percent, plural

__all__ = ["DriftSection", "MovedSample", "SizeRow", "drift_section"]

_LARGEST_TABLE = 60
_LISTED_SAMPLES = 40  # as many as are printed
_LISTED_WAYS = 20

MovedSample = tuple[str, int, int]
"""A sample's name, its cluster in the run before, and now."""


@dataclass(frozen=True)
class SizeRow:
    """A cluster's samples in the run before and now; a dash where it was not there."""

    cluster: int
    before: str
    after: str
    change: str


@dataclass(frozen=True, kw_only=True)
class DriftSection:
    """The section *Since the run before*.

    Attributes
    ----------
    earlier
        Name of that run's directory.
    how
        How this run started from it, as a sentence.
    facts
        Titles and numbers of the tiles.
    sizes, sizes_cut
        Rows of the table, and what was left out; those that changed most come first where it is cut.
    ways
        From which cluster to which how many samples moved, most first.
    moved
        The first of the samples that moved.
    n_moved
        All of them.
    link
        To the file with all of them; None when there is none.
    """

    earlier: str
    how: str
    facts: tuple[tuple[str, str], ...]
    sizes: tuple[SizeRow, ...]
    sizes_cut: str
    ways: tuple[tuple[int, int, str], ...]
    moved: tuple[MovedSample, ...]
    n_moved: int
    link: FileLink | None


def drift_section(
    drift: Mapping[str, Any] | None, moved: Sequence[MovedSample], files: Sequence[FileLink]
) -> DriftSection | None:
    """Return the section, or None for a run without one before it.

    Parameters
    ----------
    drift
        As in run.json.
    moved
        Lines of moved.csv.
    files
        Of the run.
    """
    if drift is None:
        return None
    n_common, n_moved = drift["n_common"], drift["n_moved"]
    sizes, cut = _sizes(drift)
    ways = Counter((old, new) for _, old, new in moved).most_common(_LISTED_WAYS)
    return DriftSection(
        earlier=drift["earlier"],
        how=_how(drift),
        facts=(
            ("In both runs", count(n_common)),
            ("New", count(drift["n_new"])),
            ("Gone", count(drift["n_gone"])),
            ("Moved", f"{count(n_moved)} ({percent(n_moved / n_common if n_common else 0.0)})"),
        ),
        sizes=sizes,
        sizes_cut=cut,
        ways=tuple((old, new, count(number)) for (old, new), number in ways),
        moved=tuple(moved[:_LISTED_SAMPLES]),
        n_moved=n_moved,
        link=next((file for file in files if file.name == "moved.csv"), None),
    )


def _how(drift: Mapping[str, Any]) -> str:
    if drift["start"] == "warm":
        runs = plural(drift["warm_runs"], "such run")
        return f"Started from its clusters and setting; {runs} since the last fresh start."
    if drift["start"] == "cold":
        return f"Started afresh: {drift['reason'].rstrip('.')}."
    return "Same views and settings: its clusters as they are."


def _sizes(drift: Mapping[str, Any]) -> tuple[tuple[SizeRow, ...], str]:
    pairs = list(zip_longest(drift["sizes_before"], drift["sizes_after"], fillvalue=0))
    names = drift["cluster_names"]
    rows = list(zip(names, pairs, strict=True))
    cut = ""
    if len(rows) > _LARGEST_TABLE:
        cut = f"The {_LARGEST_TABLE} of {count(len(rows))} clusters that changed most."
        rows.sort(key=lambda row: -abs(row[1][1] - row[1][0]))
    return tuple(SizeRow(name, *_texts(*sizes)) for name, sizes in rows[:_LARGEST_TABLE]), cut


def _texts(before: int, after: int) -> tuple[str, str, str]:
    change = after - before
    sign = "+" if change > 0 else "\u2212" if change < 0 else "\u00b1"
    return (
        count(before) if before else "\u2013",
        count(after) if after else "\u2013",
        f"{sign}{count(abs(change))}",
    )
