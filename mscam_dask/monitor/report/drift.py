"""Section on the drift since the previous run: cluster sizes, and samples that moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from mscam_dask.monitor.report.formatting import count, percent, plural
from mscam_dask.monitor.run_record import DriftRecord

if TYPE_CHECKING:
    from mscam_dask.monitor.report.page import FileLink

__all__ = ["DriftSection", "MovedSample", "SizeRow", "drift_section"]

_MAX_TABLE = 60
_MAX_SAMPLES = 40
_MAX_MOVES = 20

MovedSample = tuple[str, int, int]
"""Name of a sample, its cluster in the previous run, and its cluster."""


@dataclass(frozen=True)
class SizeRow:
    """Sizes of a cluster in the previous run and in this one; a dash if it does not exist."""

    cluster: int
    before: str
    after: str
    change: str


@dataclass(frozen=True, kw_only=True)
class DriftSection:
    """Content of the section.

    Attributes
    ----------
    previous
        Name of the directory of the previous run.
    how
        Sentence on how this run started from it.
    facts
        Titles and numbers of the tiles.
    sizes, sizes_cut
        Rows of the table, and a sentence if only the largest changes are shown.
    moves
        Previous cluster, cluster and number of samples, the most frequent first.
    moved
        The first samples that moved.
    n_moved
        Number of samples that moved.
    link
        Link to the file with all of them, or None.
    """

    previous: str
    how: str
    facts: tuple[tuple[str, str], ...]
    sizes: tuple[SizeRow, ...]
    sizes_cut: str
    moves: tuple[tuple[int, int, str], ...]
    moved: tuple[MovedSample, ...]
    n_moved: int
    link: FileLink | None


def drift_section(
    drift: DriftRecord | None, moved: Sequence[MovedSample], files: Sequence[FileLink]
) -> DriftSection | None:
    """Return the section, or None if there is no previous run.

    Parameters
    ----------
    drift
        `drift` of run.json.
    moved
        Lines of moved.csv.
    files
        Files of the run.
    """
    if drift is None:
        return None
    n_common, n_moved = drift.n_common, drift.n_moved
    sizes, cut = _sizes(drift)
    moves = Counter((old, new) for _, old, new in moved).most_common(_MAX_MOVES)
    return DriftSection(
        previous=drift.earlier,
        how=_how(drift),
        facts=(
            ("In both runs", count(n_common)),
            ("New", count(drift.n_new)),
            ("Removed", count(drift.n_gone)),
            ("Moved", f"{count(n_moved)} ({percent(n_moved / n_common if n_common else 0.0)})"),
        ),
        sizes=sizes,
        sizes_cut=cut,
        moves=tuple((old, new, count(number)) for (old, new), number in moves),
        moved=tuple(moved[:_MAX_SAMPLES]),
        n_moved=n_moved,
        link=next((file for file in files if file.name == "moved.csv"), None),
    )


def _how(drift: DriftRecord) -> str:
    if drift.start == "warm":
        runs = plural(drift.warm_runs, "warm start")
        return f"The fit started from its clusters and settings ({runs} in a row)."
    if drift.start == "cold":
        return f"The fit did not start from it: {drift.reason.rstrip('.')}."
    return "Views and settings are the same, so its clusters were reused."


def _sizes(drift: DriftRecord) -> tuple[tuple[SizeRow, ...], str]:
    pairs = list(zip_longest(drift.sizes_before, drift.sizes_after, fillvalue=0))
    names = drift.cluster_names
    rows = list(zip(names, pairs, strict=True))
    cut = ""
    if len(rows) > _MAX_TABLE:
        cut = f"The {_MAX_TABLE} of {count(len(rows))} clusters with the largest changes."
        rows.sort(key=lambda row: -abs(row[1][1] - row[1][0]))
    return tuple(SizeRow(name, *_texts(*sizes)) for name, sizes in rows[:_MAX_TABLE]), cut


def _texts(before: int, after: int) -> tuple[str, str, str]:
    change = after - before
    sign = "+" if change > 0 else "\u2212" if change < 0 else "\u00b1"
    return (
        count(before) if before else "\u2013",
        count(after) if after else "\u2013",
        f"{sign}{count(abs(change))}",
    )
