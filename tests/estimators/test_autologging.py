"""A fit fits no scikit-learn estimator, which autologgers would record as a model of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.utils import all_estimators

from mscam_dask import MSCAM
from tests.synthetic import gaussian_views


def counting(method: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(type(self).__name__)
        return method(self, *args, **kwargs)

    return patched


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the estimators whose fit was called, patched as MLflow's autolog does."""
    found: list[str] = []
    for _, kind in all_estimators():
        if issubclass(kind, MSCAM):
            continue
        for name in ("fit", "fit_transform", "fit_predict"):
            if callable(method := getattr(kind, name, None)):
                monkeypatch.setattr(kind, name, counting(method, found))
    return found


def test_autologgers_see_no_fit_inside_a_fit(calls: list[str]) -> None:
    views, _ = gaussian_views(0, n_samples=90)
    model = MSCAM("auto", n_jobs=1).fit(views)
    model.predict(views)
    assert calls == []
    KMeans(2, n_init=1).fit(np.eye(4))
    assert calls == ["KMeans"]  # the patch counts
