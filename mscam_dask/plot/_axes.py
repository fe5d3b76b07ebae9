"""Axes of a picture and their legend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mscam_dask.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["add_legend", "new_axes"]


def new_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes given, or those of a new figure, which pyplot does not know."""
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigurationError(
            "mscam_dask.plot needs matplotlib. Install it: pip install 'mscam-dask[plot]'."
        ) from error
    return Figure(figsize=size, layout="constrained").add_subplot()


def add_legend(ax: Axes) -> None:
    """Add a legend on the right of the axes."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
