"""Figures on the benchmark sets, loosely: labels are looked at here, never by a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mscam_dask.benchmark.methods import METHODS
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.metrics import score_partition
from tests.benchmark_sets import BenchmarkData

Loader = Callable[[str], BenchmarkData]

CASES = [
    # method, parameters, data set, ACC, NMI; docs/baselines.md has the commands
    ("knn-sc", {}, "handwritten", 0.9750, 0.942),
    ("smvsc", {}, "handwritten", 0.8205, 0.789),
    ("smvsc", {}, "msrcv1", 0.8143, 0.708),
    ("mlan", {}, "msrcv1", 0.7762, 0.739),
    ("mmsc", {}, "msrcv1", 0.7714, 0.706),
    ("sc-concat", {}, "handwritten", 0.7965, 0.741),
    ("sc-bsv", {"view": "fou", "scale": "none"}, "handwritten", 0.7140, 0.645),
]

slow = (pytest.mark.slow, pytest.mark.timeout(900))

SLOW: list[Any] = [
    ("mlan", {}, "handwritten", 0.9735, 0.942),
    ("coreg", {}, "handwritten", 0.9185, 0.848),
    ("lmvsc", {"n_anchors": 50, "alpha": 10.0}, "handwritten", 0.9210, 0.862),
    ("mmsc", {}, "handwritten", 0.8495, 0.860),
    ("mmsc", {"alpha": 0.1}, "handwritten", 0.8325, 0.8945),
    ("ssc-concat", {}, "handwritten", 0.8120, 0.855),
    ("ssc-bsv", {"view": "pix", "scale": "none"}, "handwritten", 0.6705, 0.788),
    ("dimsc", {}, "handwritten", 0.9435, 0.892),
]


@pytest.mark.parametrize(
    ("name", "parameters", "data_set", "accuracy", "information"),
    [*CASES, *(pytest.param(*case, marks=slow) for case in SLOW)],
)
def test_the_figure_is_reached(
    name: str,
    parameters: dict[str, Any],
    data_set: str,
    accuracy: float,
    information: float,
    benchmark_data: Loader,
) -> None:
    data = benchmark_data(data_set)
    views = as_multi_view(dict(zip(data.names, data.views, strict=True)), view_type=data.kinds)
    model = METHODS[name].make(len(np.unique(data.labels)), 0, parameters)
    scores = score_partition(data.labels, model.fit(views).labels_)
    assert abs(scores.accuracy - accuracy) <= 0.02
    assert abs(scores.normalized_mutual_information - information) <= 0.02
