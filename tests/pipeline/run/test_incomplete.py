"""Pipelines of files with different samples and missing cells: run, report, prediction."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.impute import KNNImputer
from sklearn.metrics import adjusted_rand_score

import mscam_dask
from mscam_dask.data.ingest import append, ingest
from mscam_dask.data.results import read_result
from mscam_dask.data.store.read import open_store
from mscam_dask.errors import DataError
from mscam_dask.pipeline.load_run import predict_files
from tests.messages import raises
from tests.pipeline.runs import HERE, QUIET, THREE, run
from tests.synthetic import gaussian_views

IDS = np.array([f"s{row}" for row in range(120)])


@pytest.fixture(scope="module")
def incomplete(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
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
        f"{THREE}{HERE}"
    )
    run(folder / "p.toml", folder / "run")
    return folder / "run", has, labels


def test_a_run_clusters_every_sample_and_its_report_has_a_table_of_presence(
    incomplete: tuple[Path, Any, Any],
) -> None:
    directory, has, labels = incomplete
    data = open_store(directory / "data.zarr")
    order = [IDS.tolist().index(name) for name in data.sample_ids]
    assert_array_equal(data.presence, has[order])
    result = read_result(directory / "result.zarr")
    assert adjusted_rand_score(labels[order], result.labels) > 0.9
    for column, name in enumerate("abc"):
        absent = ~has[order][:, column]
        assert_array_equal(np.isnan(result.view_embeddings[name]).all(axis=1), absent)
    page = (directory / "report.html").read_text()
    (table,) = re.findall(r'<table class="data" id="presence"[^>]*>.*?</table>', page, re.DOTALL)
    counts = [int(text) for text in re.findall(r'row" class="n">(\d+)<', table)]
    assert sum(counts) == 120
    in_view = re.findall(r'<td class="n">(\d+)</td>', table)
    assert [int(text) for text in in_view] == has.sum(axis=0).tolist()
    assert "imputed by" in page
    assert not re.search(r"\bnan\b", page)


def test_a_loaded_run_predicts_samples_of_some_views(incomplete: tuple[Path, Any, Any]) -> None:
    directory, has, _ = incomplete
    model = mscam_dask.load_run(directory)
    data = open_store(directory / "data.zarr")
    assert_array_equal(model.view_presence_, data.presence)
    assert np.mean(model.predict(data) == model.labels_) > 0.95
    assert_array_equal(model.view_votes_["a"] < 0, ~data.presence[:, 0])
    samples = pd.read_csv(directory / "samples.csv")
    assert_array_equal(samples["vote_a"].fillna(-1), model.view_votes_["a"])
    table = predict_files(directory, [str(directory.parent / "a.csv")])
    assert len(table["cluster"]) == has[:, 0].sum()
    by_id = pd.Series(model.labels_, index=list(data.sample_ids or ()))
    assert np.mean(by_id[table["sample"]].to_numpy() == table["cluster"].to_numpy()) > 0.6


def holed_frames(directory: Path) -> dict[str, pd.DataFrame]:
    """Two tables of 90 samples with missing cells: 60 in the files old/*, the rest in new/*."""
    views, _ = gaussian_views(1, n_samples=90, spread=2.0, dims=(4, 6))
    rng = np.random.default_rng(2)
    frames = {}
    for name, view in zip("ab", views, strict=True):
        view[rng.random(view.shape) < 0.1] = np.nan
        frames[name] = pd.DataFrame(view, index=pd.Index(IDS[:90], name="id")).add_prefix(name)
        for place, rows in (("old", frames[name].iloc[:60]), ("new", frames[name].iloc[60:])):
            (directory / place).mkdir(exist_ok=True)
            rows.to_csv(directory / place / f"{name}.csv")
    return frames


def write_pipeline(directory: Path, data: str) -> Path:
    file = directory / "p.toml"
    file.write_text(f"[data]\n{data}\n{THREE}{QUIET}")
    return file


def test_a_loaded_run_fills_missing_cells_as_its_fit_did(tmp_path: Path) -> None:
    frames = holed_frames(tmp_path)
    sources = 'source = ["old/a.csv", "old/b.csv"]\nimpute = "knn"'
    run(write_pipeline(tmp_path, sources), tmp_path / "run")
    loaded = mscam_dask.load_run(tmp_path / "run")
    new = {name: frame.iloc[60:] for name, frame in frames.items()}
    stored = {view.name: view.read(0, 60) for view in open_store(tmp_path / "run/data.zarr").views}
    filled = {}
    for name, frame in new.items():
        imputer = KNNImputer().fit(stored[name])
        filled[name] = frame.copy()
        filled[name][:] = imputer.transform(frame.to_numpy())
    assert_array_equal(loaded.predict(new), loaded.predict(filled))
    assert_allclose(loaded.predict_proba(new), loaded.predict_proba(filled))
    table = predict_files(tmp_path / "run", [str(tmp_path / f"new/{name}.csv") for name in "ab"])
    assert table["cluster"].tolist() == loaded.predict(new).tolist()
    shutil.rmtree(tmp_path / "run/data.zarr")
    again = mscam_dask.load_run(tmp_path / "run")
    assert_array_equal(again.predict(filled), loaded.predict(filled))
    with raises(DataError, "data.zarr"):
        again.predict(new)


def test_fits_and_runs_of_an_imputed_store_fill_missing_cells_in_the_same_way(
    tmp_path: Path,
) -> None:
    frames = holed_frames(tmp_path)
    store = tmp_path / "s.zarr"
    files = {place: [tmp_path / place / f"{name}.csv" for name in "ab"] for place in ("old", "new")}
    ingest(files["old"], store, impute="median")
    run(write_pipeline(tmp_path, 'source = "s.zarr"'), tmp_path / "run")
    table = predict_files(tmp_path / "run", [str(file) for file in files["new"]])
    constants = mscam_dask.Constants.paper()
    model = mscam_dask.MSCAM(3, constants=constants, max_iter=3, n_jobs=1).fit(store)
    assert (
        table["cluster"].tolist()
        == model.predict({name: frame.iloc[60:] for name, frame in frames.items()}).tolist()
    )
    append(files["new"], store, impute="mean")
    assert [getattr(view, "impute", None) for view in open_store(store).views] == ["median"] * 2
