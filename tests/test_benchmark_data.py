"""Defaults on real data: exactly c components, no warning, and the quality the issue asks for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mscam_dask.metrics import score_partition
from tests.benchmark_sets import BenchmarkData, default_fit
from tests.benchmarks.quality import BARS, confidence
from tests.synthetic import assert_partition_and_graph_agree

Loader = Callable[[str], BenchmarkData]

slow = (pytest.mark.slow, pytest.mark.timeout(900))


@pytest.mark.parametrize(
    "name",
    [
        "handwritten",
        "msrcv1",
        "mnist4",
        *(
            pytest.param(name, marks=slow)
            for name in ("caltech101_7", "flowers17", "bbc", "cora", "reuters1200", "proteinfold")
        ),
    ],
)
@pytest.mark.thorough
def test_defaults_end_with_exactly_c_components(name: str, benchmark_data: Loader) -> None:
    # warnings are errors in this suite: none may come from a fit with defaults
    data = benchmark_data(name)
    model = default_fit(name, data)
    assert_partition_and_graph_agree(model.solution_, n_clusters=data.n_clusters)
    # what was found odd in the data is counted right
    zero_rows = {
        finding.view: finding.count
        for finding in model.data_warnings_
        if finding.kind == "zero rows"
    }
    expected = {
        view: int(np.sum(~rows.any(axis=1)))
        for view, rows in zip(data.names, data.views, strict=True)
    }
    assert zero_rows == {view: count for view, count in expected.items() if count}


def test_handwritten_reaches_the_papers_quality(benchmark_data: Loader) -> None:
    data = benchmark_data("handwritten")
    labels = default_fit("handwritten", data).labels_
    scores = score_partition(data.labels, labels)
    assert scores.accuracy >= 0.978
    assert scores.normalized_mutual_information >= 0.948


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("handwritten", "msrcv1", "prokaryotic") else pytest.param(name, marks=slow)
        for name in BARS
    ],
)
@pytest.mark.thorough
def test_confidence_tells_wrong_samples(name: str, benchmark_data: Loader) -> None:
    data = benchmark_data(name)
    auc, *_ = confidence(data.labels, default_fit(name, data))
    assert auc >= BARS[name]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        *((name, 0.6, 1.0) for name in ("handwritten", "msrcv1", "mnist4", "ngs")),
        *(
            pytest.param(name, 0.0, 0.4, marks=slow)
            for name in ("proteinfold", "landuse21", "flowers17")
        ),
    ],
)
@pytest.mark.thorough
def test_borders_tell_good_partitions_from_bad_ones(
    name: str, low: float, high: float, benchmark_data: Loader
) -> None:
    model = default_fit(name, benchmark_data(name))
    assert low <= len(model.standing_clusters_) / model.n_clusters_ <= high
