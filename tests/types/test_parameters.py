"""Parameters: numbers that follow from them."""

from __future__ import annotations

import pytest

from mscam_dask.errors import ConfigurationError
from mscam_dask.types.parameters import Constants, Parameters


@pytest.mark.parametrize(
    ("n_clusters", "n_samples", "expected"),
    [
        (3, 1000, 20),
        (3, 150, 15),  # a tenth of the samples
        (3, 40, 6),
        (12, 1000, 24),
        (3, 5, 5),  # there are no more
        (3, 50_000, 6),  # large
    ],
)
def test_eigenpairs_are_twice_the_clusters_and_twenty_where_samples_allow(
    n_clusters: int, n_samples: int, expected: int
) -> None:
    assert Parameters(n_clusters=n_clusters).n_pairs(n_samples) == expected


def test_a_mapping_is_no_settings_of_the_admm() -> None:
    with pytest.raises(ConfigurationError):
        Constants(admm={"penalty": 10.0})  # type: ignore[arg-type]
