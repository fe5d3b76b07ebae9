"""Pipelines of files with different samples: run, report, prediction, resume."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.metrics import adjusted_rand_score

import mscam_dask
from mscam_dask.data.ingest import append, ingest
from mscam_dask.data.results import read_result
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import DataError
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.run.load_run import predict_files
from mscam_dask.pipeline.run.run import run_pipeline
from tests.messages import raises
from tests.synthetic import gaussian_views

IDS = np.array([f"s{row}" for row in range(120)])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """Directory of a run of three files with other samples each, their presence and the labels."""
    folder = tmp_path_factory.mktemp("incomplete")
    views, labels = gaussian_views(0, n_samples=120, spread=2.0)
    has = np.random.default_rng(0).random((120, 3)) >= 0.3
    has[~has.any(axis=1), 0] = True
    for column, (name, view) in enumerate(zip("abc", views, strict=True)):
        own = has[:, column]
        frame = pd.DataFrame(view[own], index=pd.Index(IDS[own], name="id")).add_prefix("f")
        if name == "b":
            frame.iloc[2, 1] = np.nan
        frame.to_csv(folder / f"{name}.csv")
    (folder / "p.toml").write_text(
        '[data]\nsource = ["a.csv", "b.csv", "c.csv"]\njoin = "outer"\nimpute = "median"\n'
        "[cluster]\nn_clusters = 3\n[execution]\nin_process = true\n"
    )
    run_pipeline(read_config(folder / "p.toml"), folder / "run")
    return folder / "run", has, labels


def test_a_run_clusters_every_sample(run: tuple[Path, Any, Any]) -> None:
    directory, has, labels = run
    data = open_store(directory / "data.zarr")
    assert data.sample_ids is not None
    order = [IDS.tolist().index(name) for name in data.sample_ids]
    assert_array_equal(data.presence, has[order])
    result = read_result(directory / "result.zarr")
    assert adjusted_rand_score(labels[order], result.labels) > 0.9
    for column, name in enumerate("abc"):
        absent = ~has[order][:, column]
        assert_array_equal(np.isnan(result.view_embeddings[name]).all(axis=1), absent)


def test_the_report_has_a_table_of_presence(run: tuple[Path, Any, Any]) -> None:
    directory, has, _ = run
    page = (directory / "report.html").read_text()
    (table,) = re.findall(r'<table class="data" id="presence"[^>]*>.*?</table>', page, re.DOTALL)
    counts = [int(text) for text in re.findall(r'row" class="n">(\d+)<', table)]
    assert sum(counts) == 120
    in_view = re.findall(r'<td class="n">(\d+)</td>', table)
    assert [int(text) for text in in_view] == has.sum(axis=0).tolist()
    assert "imputed by" in page
    assert not re.search(r"\bnan\b", page)


def test_a_loaded_run_predicts_samples_of_some_views(run: tuple[Path, Any, Any]) -> None:
    directory, has, _ = run
    model = mscam_dask.load_run(directory)
    data = open_store(directory / "data.zarr")
    assert_array_equal(model.view_presence_, data.presence)
    assert np.mean(model.predict(data) == model.labels_) > 0.95
    assert_array_equal(model.view_votes_["a"] < 0, ~data.presence[:, 0])
    samples = pd.read_csv(directory / "samples.csv")
    assert_array_equal(samples["vote_a"].fillna(-1), model.view_votes_["a"])
    table = predict_files(directory, [str(directory.parent / "a.csv")])
    assert len(table["cluster"]) == has[:, 0].sum()
    by_id = dict(zip(data.sample_ids or (), model.labels_.tolist(), strict=True))
    agree = [
        by_id[name] == label for name, label in zip(table["sample"], table["cluster"], strict=True)
    ]
    assert np.mean(agree) > 0.6


@pytest.mark.parametrize("method", ["mean", "median", "knn"])
def test_a_loaded_run_fills_missing_cells_as_its_fit_did(method: str, tmp_path: Path) -> None:
    views, _ = gaussian_views(1, n_samples=90, spread=2.0, dims=(4, 6))
    rng = np.random.default_rng(2)
    frames = {}
    for name, view in zip("ab", views, strict=True):
        view[rng.random(view.shape) < 0.1] = np.nan
        frames[name] = pd.DataFrame(view, index=pd.Index(IDS[:90], name="id")).add_prefix(name)
        frames[name].iloc[:60].to_csv(tmp_path / f"{name}.csv")
        frames[name].iloc[60:].to_csv(tmp_path / f"new_{name}.csv")
    settings = "n_clusters = 3\nconstants.auto_settings = false\nmax_iter = 3\n"
    (tmp_path / "p.toml").write_text(
        f'[data]\nsource = ["a.csv", "b.csv"]\nimpute = "{method}"\n'
        f"[cluster]\n{settings}[execution]\nin_process = true\n"
    )
    run_pipeline(read_config(tmp_path / "p.toml"), tmp_path / "run")
    loaded = mscam_dask.load_run(tmp_path / "run")
    new = {name: frame.iloc[60:] for name, frame in frames.items()}
    stored = {view.name: view.read(0, 60) for view in open_store(tmp_path / "run/data.zarr").views}
    filled = {}
    for name, frame in new.items():
        # of means and medians, imputed cells change nothing
        known = stored[name] if method == "knn" else frames[name].iloc[:60].to_numpy()
        imputer = KNNImputer() if method == "knn" else SimpleImputer(strategy=method)
        filled[name] = frame.copy()
        filled[name][:] = imputer.fit(known).transform(frame.to_numpy())
    assert_array_equal(loaded.predict(new), loaded.predict(filled))
    assert_allclose(loaded.predict_proba(new), loaded.predict_proba(filled))
    (tmp_path / "new").mkdir()
    for name in "ab":
        (tmp_path / f"new_{name}.csv").rename(tmp_path / "new" / f"{name}.csv")
    table = predict_files(tmp_path / "run", [str(tmp_path / "new" / f"{n}.csv") for n in "ab"])
    assert table["cluster"].tolist() == loaded.predict(new).tolist()
    shutil.rmtree(tmp_path / "run/data.zarr")
    again = mscam_dask.load_run(tmp_path / "run")
    assert_array_equal(again.predict(filled), loaded.predict(filled))
    with raises(DataError, "data.zarr"):
        again.predict(new)


def test_fits_and_runs_of_an_imputed_store_fill_missing_cells_in_the_same_way(
    tmp_path: Path,
) -> None:
    views, _ = gaussian_views(1, n_samples=90, spread=2.0, dims=(4, 6))
    rng = np.random.default_rng(2)
    for name, view in zip("ab", views, strict=True):
        view[rng.random(view.shape) < 0.1] = np.nan
        frame = pd.DataFrame(view, index=pd.Index(IDS[:90], name="id")).add_prefix(name)
        for place, rows in (("old", frame.iloc[:60]), ("new", frame.iloc[60:])):
            (tmp_path / place).mkdir(exist_ok=True)
            rows.to_csv(tmp_path / place / f"{name}.csv")
    store = tmp_path / "s.zarr"
    files = {place: [tmp_path / place / f"{name}.csv" for name in "ab"] for place in ("old", "new")}
    ingest(files["old"], store, impute="median")
    (tmp_path / "p.toml").write_text(
        '[data]\nsource = "s.zarr"\n[cluster]\nn_clusters = 3\nconstants.auto_settings = false\n'
        "max_iter = 3\n[execution]\nin_process = true\n"
    )
    run_pipeline(read_config(tmp_path / "p.toml"), tmp_path / "run")
    table = predict_files(tmp_path / "run", [str(file) for file in files["new"]])
    model = mscam_dask.MSCAM(3, constants=mscam_dask.Constants.paper(), max_iter=3, n_jobs=1).fit(
        store
    )
    holed = {name: view[60:] for name, view in zip("ab", views, strict=True)}
    filled = {
        name: SimpleImputer(strategy="median").fit(view[:60]).transform(view[60:])
        for name, view in zip("ab", views, strict=True)
    }
    with pytest.warns(UserWarning, match="feature names"):
        expected = model.predict(filled)
    with pytest.warns(UserWarning, match="feature names"):
        assert_array_equal(model.predict(holed), expected)
    assert table["cluster"].tolist() == expected.tolist()
    append(files["new"], store, impute="mean")
    assert [getattr(view, "impute", None) for view in open_store(store).views] == ["median"] * 2
