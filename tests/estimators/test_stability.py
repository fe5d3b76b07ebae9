"""`stability_` and `cluster_stability_` of a fit."""

from __future__ import annotations

import numpy as np
import pytest

from mscam_dask.errors import ConfigurationError, ConvergenceWarning
from mscam_dask.estimators import _describe
from tests.estimators.small import quick
from tests.messages import quotes
from tests.synthetic import gaussian_views


def test_separate_clusters_are_stable() -> None:
    views, _ = gaussian_views(0, n_samples=120, spread=3.0)
    model = quick().fit(views)
    assert model._stability is None  # nothing is computed by the fit
    assert model.cluster_stability_.shape == (3,)
    assert model.stability_ == pytest.approx(model.cluster_stability_.mean())
    assert model.stability_ > 0.95
    assert model.cluster_stability_ is model.cluster_stability_


def test_large_data_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_describe, "_STABILITY_SAMPLES", 90)
    views, _ = gaussian_views(0, n_samples=300, spread=3.0)
    assert quick().fit(views).stability_ > 0.95


def test_trivial_partitions_and_the_reference_solver() -> None:
    views, _ = gaussian_views(0, n_samples=20)
    assert quick(1).fit(views).stability_ == 1.0
    assert np.isnan(quick(20).fit(views).stability_)
    assert np.isnan(quick(20).fit(views).cluster_stability_).all()
    with pytest.warns(ConvergenceWarning):
        model = quick(solver="reference").fit(views)
    with pytest.raises(ConfigurationError, match=quotes("solver='reference'")):
        _ = model.stability_
