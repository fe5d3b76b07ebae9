"""Colors of clusters, in the report and in `mscam_dask.plot`."""

from __future__ import annotations

__all__ = ["CLUSTER_COLORS", "cluster_color"]

CLUSTER_COLORS = (
    *("#3f90da", "#ffa90e", "#bd1f01", "#7d8d8b", "#832db6", "#a96b59", "#e76300", "#a39a56"),
    *("#50535c", "#43b3b8", "#f070f0", "#1010f0", "#10d010", "#108010", "#701010", "#103080"),
    *("#d01090", "#d0b0d0", "#104010", "#c030f0", "#601070", "#a070c0", "#f06090", "#1060c0"),
)
"""The ten colors of M. A. Petroff (arXiv:2107.02270), and fourteen more.

Each of the fourteen is the color of a grid, of contrast 1.9 to 12 with white, that is farthest from
those before it in OKLab, with a quarter of that distance under simulated protanopia and deuteranopia
added. No two colors are closer in OKLab than the closest of the first ten.
"""


def cluster_color(cluster: int) -> str:
    """Return the color of a cluster; the colors repeat after the last."""
    return CLUSTER_COLORS[cluster % len(CLUSTER_COLORS)]
