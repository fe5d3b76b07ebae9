"""Names of a view's columns: who has them, where two differ first, how some are listed."""

from __future__ import annotations

from collections.abc import Sequence

from mscam_dask.data.views.sources import RowSource

__all__ = ["feature_names_of", "first_difference", "is_numbering", "listed"]

_SHOWN = 5


def feature_names_of(view: RowSource) -> tuple[str, ...] | None:
    """Names of the d columns of a view, None where what holds it has none."""
    names: tuple[str, ...] | None = getattr(view, "feature_names", None)
    return names


def is_numbering(names: Sequence[str]) -> bool:
    """Tell whether names are 0, 1, ..., what a frame has that was given none."""
    return tuple(names) == tuple(map(str, range(len(names))))


def first_difference(names: Sequence[str], others: Sequence[str]) -> int:
    """Position of the first name that is another one in `others`, which has as many and differs."""
    pairs = enumerate(zip(names, others, strict=True))
    return next(position for position, (name, other) in pairs if name != other)


def listed(names: Sequence[str]) -> str:
    """The first names, quoted, for messages."""
    return ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
