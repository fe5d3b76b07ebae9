"""More than twenty cluster colors, each apart from the others."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from mscam_dask.plot.palette import CLUSTER_COLORS


def oklab(color: str) -> NDArray[np.float64]:
    """Coordinates of B. Ottosson, in which distances are differences seen."""
    channels = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.asarray(lab @ np.cbrt(cones @ linear))


def test_no_two_colors_are_closer_than_the_closest_of_the_first_ten() -> None:
    assert len(CLUSTER_COLORS) > 20

    def closest(colors: tuple[str, ...]) -> float:
        pairs = itertools.combinations(map(oklab, colors), 2)
        return min(float(np.linalg.norm(first - second)) for first, second in pairs)

    assert closest(CLUSTER_COLORS) >= closest(CLUSTER_COLORS[:10])
    assert np.linalg.norm(oklab("#ffffff") - oklab("#000000")) > 0.99
