"""Table of which samples are absent from which views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pattern", "PresenceSection", "presence_section"]

_MAX_PATTERNS = 20


@dataclass(frozen=True)
class Pattern:
    """Samples that are in the same views: their number, and whether each view has them."""

    n_samples: int
    has: tuple[bool, ...]


@dataclass(frozen=True)
class PresenceSection:
    """Presence of the samples in the views that are not excluded.

    Attributes
    ----------
    views
        Name of each view and the number of its samples.
    patterns
        The most frequent sets of views first.
    cut
        Sentence about sets that are not shown; empty if all are.
    """

    views: tuple[tuple[str, int], ...]
    patterns: tuple[Pattern, ...]
    cut: str


def presence_section(by_view: Mapping[str, NDArray[Any]]) -> PresenceSection | None:
    """Return the table, None if every view has all samples.

    Parameters
    ----------
    by_view : mapping of str to (n, m)
        Coordinates of the samples in each view, NaN for those that it does not have.
    """
    if not by_view:
        return None
    table = np.stack([~np.isnan(values).all(axis=1) for values in by_view.values()], axis=1)
    if table.all():
        return None
    found, counts = np.unique(table, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shown = order[:_MAX_PATTERNS]
    n_others = int(counts[order[_MAX_PATTERNS:]].sum())
    return PresenceSection(
        views=tuple(zip(by_view, table.sum(axis=0).tolist(), strict=True)),
        patterns=tuple(
            Pattern(int(counts[row]), tuple(bool(value) for value in found[row])) for row in shown
        ),
        cut=""
        if not n_others
        else f"{len(order) - len(shown)} more sets of views have {n_others} samples.",
    )
