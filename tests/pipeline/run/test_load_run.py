"""A finished run as a model, also of files with different samples and missing cells: what it predicts, and what is refused."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.csgraph import connected_components
from sklearn.impute import KNNImputer
from sklearn.metrics import adjusted_rand_score

from mscam_dask import MSCAM, MSCAN, Constants, load_run
from mscam_dask.cli import main
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.ingest import ingest
from mscam_dask.data.results import StoredArrays, read_model, read_result
from mscam_dask.data.store.dataset import open_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError
from mscam_dask.estimators._stored import FittedModel
from mscam_dask.pipeline.load_run import predict_files
from mscam_dask.pipeline.run import RunOutcome
from mscam_dask.types.result import Structure
from mscam_dask.types.rules import SIZES
from tests.blocks import other_values
from tests.estimators.small import quick
from tests.messages import raises
from tests.pipeline.runs import (
    HERE,
    QUIET,
    THREE,
    Write,
    a_chunk,
    again,
    labels_of,
    rewritten,
    write_tiny,
)
from tests.synthetic import gaussian_views, save_npz, three_subspaces, values_of


@pytest.fixture(scope="module")
def model() -> MSCAM:
    """The estimator of the fit of the runs that are copied."""
    return quick(max_iter=3).fit(three_subspaces())


def samples_of(outcome: RunOutcome) -> list[dict[str, str]]:
    with outcome.directory.samples.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def same_model(loaded: Any, model: Any, new: Any) -> None:
    assert_array_equal(loaded.labels_, model.labels_)
    for method in ("predict", "predict_proba", "transform", "score"):
        assert_array_equal(getattr(loaded, method)(new), getattr(model, method)(new))
    for name in ("membership_", "confidence_", "cluster_borders_"):
        assert_array_equal(getattr(loaded, name), getattr(model, name))
    assert loaded.view_votes_.keys() == model.view_votes_.keys()
    for view, votes in model.view_votes_.items():
        assert_array_equal(loaded.view_votes_[view], votes)
    for name in ("status_", "n_iter_", "n_neighbors_", "view_settings_", "excluded_views_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert loaded.cross_view_information_ == model.cross_view_information_
    assert loaded.neighbor_overlap_ == model.neighbor_overlap_
    assert loaded.solution_.parameters == model.solution_.parameters
    assert loaded.history_.drop_vars("seconds").equals(model.history_.drop_vars("seconds"))
    assert (loaded.consensus_graph_ != model.consensus_graph_).nnz == 0


def test_a_loaded_run_is_the_estimator_of_the_fit(first: RunOutcome, model: MSCAM) -> None:
    loaded = load_run(first.directory.path)
    assert type(loaded) is MSCAM
    same_model(loaded, model, three_subspaces(45, seed=4))
    assert loaded.cluster_features(3).equals(model.cluster_features(3))
    assert_array_equal(loaded.fit(three_subspaces()).labels_, model.labels_)  # and fits again


def test_a_run_of_the_other_estimator(pipeline: Write) -> None:
    loaded = load_run(again(pipeline(f"method = 'mscan'\n{QUIET}")).directory.path)
    assert type(loaded) is MSCAN
    mscan = MSCAN(3, constants=Constants.paper(), max_iter=3, n_jobs=1).fit(three_subspaces())
    same_model(loaded, mscan, three_subspaces(45, seed=4))


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.DataWarning")
def test_one_cluster_without_structure_is_a_model_too() -> None:
    rng = np.random.default_rng(5)
    views = [rng.standard_normal((60, 4)), rng.standard_normal((60, 7))]
    ingest(as_multi_view(views), "noise.zarr")
    auto = "[cluster]\nn_clusters = 'auto'\n"
    outcome = again(write_tiny(Path(), QUIET, data="source = 'noise.zarr'", clusters=auto))
    loaded = load_run(outcome.directory.path)
    model = MSCAM("auto", n_jobs=1).fit("noise.zarr")
    assert model.n_clusters_ == loaded.n_clusters_ == 1
    same_model(loaded, model, [rng.standard_normal((5, 4)), rng.standard_normal((5, 7))])
    assert loaded.structure_ is model.structure_ is Structure.NONE
    assert loaded.n_clusters_curves_.attrs["chosen"] == 1
    assert loaded.cluster_features().empty
    doctor = CliRunner().invoke(main, ["doctor", str(outcome.directory.path)])
    assert doctor.exit_code == 0, doctor.output
    samples = samples_of(outcome)
    assert {(row["next_cluster"], row["confidence"]) for row in samples} == {("", "1.000000")}


def test_more_samples_than_are_stored_are_read_from_the_data(pipeline: Write, model: MSCAM) -> None:
    new = three_subspaces(45, seed=4)
    with other_values(SIZES, exact_samples=40):
        outcome = again(pipeline(QUIET))
        assert read_model(outcome.directory.result, FittedModel).coordinates is None
        same_model(load_run(outcome.directory.path), quick(max_iter=3).fit(three_subspaces()), new)
    shutil.rmtree(outcome.directory.data)
    with raises(DataError, "view_0", "data.zarr"):
        load_run(outcome.directory.path).predict(new)


@pytest.mark.thorough
def test_graphs_of_a_large_run_are_read_when_they_are_asked_for() -> None:
    data = subspace_mixture(SIZES.exact_samples + 100, 3, (5, 6), rng=np.random.default_rng(0))
    save_npz(Path("large.npz"), data)
    clusters = THREE.replace("iter = 3", "iter = 1")
    file = write_tiny(Path(), QUIET, data="source = 'large.npz'", clusters=clusters)
    directory = again(file).directory
    assert not list(directory.path.glob("*.partial"))  # tasks have written them
    loaded = load_run(directory.path)
    assert isinstance(loaded.solution_.arrays, StoredArrays)
    large = {"consensus_graph", "learned_graph", "view_embeddings", "view_coordinates"}
    assert not large & set(vars(loaded.solution_.arrays))
    components, _ = connected_components(loaded.consensus_graph_)
    assert components == loaded.n_connected_components_ == 3
    assert list(loaded.view_embeddings_) == ["view_0", "view_1"]


@pytest.mark.parametrize("as_url", [False, True])
def test_a_run_predicts_after_its_store_has_grown(tiny: Path, *, as_url: bool) -> None:
    store = ingest(tiny.name, "data.zarr").output
    place = store.as_uri() if as_url else store.name  # type: ignore[union-attr]
    path = again(write_tiny(Path(), QUIET, data=f"source = '{place}'")).directory.path
    new = three_subspaces(30, seed=1)
    before = load_run(path).predict(new)
    ingest(three_subspaces(90), "data.zarr", overwrite=True)
    loaded = load_run(path)
    assert_array_equal(loaded.predict(new), before)
    with raises(DataError, "view_0", "data.zarr", "changed"):
        loaded.cluster_features()


# ----------------------------------------------------------------------------- files


def test_ids_and_names_of_columns_are_kept_and_tables_are_read_back() -> None:
    frames = {}
    Path("new").mkdir()
    ids = pd.Index([f"p{row}" for row in range(60)], name="id")
    for name, view in zip(("genes", "sites"), values_of(three_subspaces()).values(), strict=True):
        frames[name] = pd.DataFrame(view, index=ids).add_prefix(name)
        frames[name].to_csv(f"{name}.csv")
        frames[name].iloc[4:8].to_csv(f"new/{name}.csv")
    sources = "source = ['genes.csv', 'sites.csv']\n"
    outcome = again(write_tiny(Path(), QUIET, data=sources))
    path = outcome.directory.path
    loaded = load_run(path)
    assert loaded.sample_ids_ == tuple(ids)
    table = predict_files(path, ["new/sites.csv", "new/genes.csv"])
    assert table["sample"].tolist() == ids[4:8].tolist()
    assert table["cluster"].tolist() == loaded.labels_[4:8].tolist()
    assert predict_files(path, ["new/sites.csv"])["sample"].equals(table["sample"])
    given = f"labels = '{outcome.directory.labels}'\n"
    columns = f"[report]\ncolumns = '{outcome.directory.samples}'\n"
    file = write_tiny(Path(), f"{HERE}{columns}", data=f"{sources}{given}")
    record = again(file).record
    assert record.metrics["accuracy"] == 1.0
    genes = frames["genes"].iloc[4:8]
    for changed, values in (
        (genes.rename(columns={"genes2": "other"}), ["genes", "genes2", "other"]),
        (genes.iloc[:, :-1], ["'genes': 5", "'genes': 4"]),
    ):
        changed.to_csv("new/genes.csv")
        with raises(DataError, *values):
            predict_files(path, ["new/sites.csv", "new/genes.csv"])


def test_labels_of_new_samples_are_not_needed(tiny: Path) -> None:
    with np.load(tiny) as archive:
        views = {name: archive[name] for name in ("view_0", "view_1")}
        np.savez("named.npz", allow_pickle=False, kinds=archive["labels"], **views)
    data = "source = 'named.npz'\nlabels = 'kinds'\nviews = {view_0 = 'a', view_1 = 'b'}"
    run = again(write_tiny(Path(), QUIET, data=data)).directory.path
    np.savez("new.npz", allow_pickle=False, **views)
    expected = load_run(run).predict({"a": views["view_0"], "b": views["view_1"]}).tolist()
    ingest("named.npz", "new.zarr", views={"view_1": "b", "view_0": "a"}, labels="kinds")
    for new in ("new.npz", "named.npz", "new.zarr"):
        assert predict_files(run, [new])["cluster"].tolist() == expected


def test_pairwise_views_take_distances_to_the_training_samples(tiny: Path) -> None:
    data = values_of(three_subspaces())
    kernel = data["view_0"] @ data["view_0"].T
    np.savez("pair.npz", allow_pickle=False, kernel=kernel, rest=data["view_1"])
    data_table = "source = 'pair.npz'\nview_type = {kernel = 'kernel'}"
    loaded = load_run(again(write_tiny(Path(), QUIET, data=data_table)).directory.path)
    model = quick(max_iter=3, view_type={"kernel": "kernel"}).fit(
        {"kernel": kernel, "rest": data["view_1"]}
    )
    new = {"kernel": kernel[:9], "rest": data["view_1"][:9]}
    assert_array_equal(loaded.predict(new), model.predict(new))


def test_samples_csv_and_parquet_hold_what_the_estimator_says(
    first: RunOutcome, model: MSCAM
) -> None:
    rows = samples_of(first)
    votes = [f"vote_{view}" for view in model.view_votes_]
    assert list(rows[0]) == ["sample", "cluster", "confidence", "next_cluster", *votes]
    others = model.membership_.copy()
    others[np.arange(60), model.labels_] = -1
    for name, values in (
        ("sample", range(60)),
        ("cluster", model.labels_),
        ("cluster", labels_of(first)),
        ("next_cluster", others.argmax(axis=1)),
        *zip(votes, model.view_votes_.values(), strict=True),
    ):
        assert [int(row[name]) for row in rows] == list(values), name
    assert_allclose([float(row["confidence"]) for row in rows], model.confidence_, atol=1e-6)
    frame = pd.read_parquet(first.directory.path / "samples.parquet")
    assert frame.columns.tolist() == list(rows[0])
    assert_array_equal(frame["confidence"], model.confidence_)
    assert_array_equal(frame["cluster"], model.labels_)


# ----------------------------------------------------------------------------- other versions


def test_parameters_of_a_later_version_are_refused_with_its_number(first: RunOutcome) -> None:
    settings = first.record.settings
    settings["cluster"]["parameters"]["from_later"] = 1
    rewritten(first.directory, settings=settings, versions={"mscam_dask": "9.1"})
    with raises(DataError, first.directory.path, "from_later", "9.1"):
        load_run(first.directory.path)


# ----------------------------------------------------------------------------- no model


def test_what_is_no_finished_run_is_refused(tmp_path: Path, first: RunOutcome) -> None:
    for place in (tmp_path, Path("missing")):
        with raises(DataError, place, "run.json"):
            load_run(place)
    with raises(ConfigurationError, "s3://bucket/run"):
        load_run("s3://bucket/run")
    path = first.directory.path
    more = msgspec.structs.replace(first.record.data, n_samples=61)
    rewritten(first.directory, data=more)
    with raises(DataError, path, "result.zarr", "--overwrite"):
        load_run(path)
    rewritten(first.directory, state="failed")
    with raises(DataError, path, "failed", "resume"):
        load_run(path)


@pytest.mark.parametrize(("part", "is_gone"), [("model/records", False), ("model/0", True)])
def test_a_damaged_model_is_refused_and_made_again(
    part: str, is_gone: bool, first: RunOutcome, pipeline: Write, model: MSCAM
) -> None:
    chunk = a_chunk(first.directory.result / part)
    content = bytearray(chunk.read_bytes())
    chunk.unlink()
    if not is_gone:
        content[len(content) // 2] ^= 8
        chunk.write_bytes(content)
    with raises(StoreCorruptError, chunk):
        load_run(first.directory.path)
    again(pipeline(QUIET))
    new = three_subspaces(30)
    assert_array_equal(load_run(first.directory.path).predict(new), model.predict(new))


IDS = np.array([f"s{row}" for row in range(120)])


def test_a_run_clusters_every_sample_and_its_report_has_a_table_of_presence() -> None:
    """Three files with other samples each."""
    views, labels = gaussian_views(0, n_samples=120, spread=2.0)
    has = np.random.default_rng(0).random((120, 3)) >= 0.3
    has[~has.any(axis=1), 0] = True
    for column, (name, view) in enumerate(zip("abc", views, strict=True)):
        own = has[:, column]
        frame = pd.DataFrame(view[own], index=pd.Index(IDS[own], name="id")).add_prefix("f")
        if name == "b":
            frame.iloc[2, 1] = np.nan
        frame.to_csv(f"{name}.csv")
    sources = 'source = ["a.csv", "b.csv", "c.csv"]\njoin = "outer"\nimpute = "median"'
    directory = again(write_tiny(Path(), HERE, data=sources)).directory
    data = open_store(directory.data)
    order = [IDS.tolist().index(name) for name in data.sample_ids]
    assert_array_equal(data.presence, has[order])
    result = read_result(directory.result)
    assert adjusted_rand_score(labels[order], result.labels) > 0.9
    for column, name in enumerate("abc"):
        absent = ~has[order][:, column]
        assert_array_equal(np.isnan(result.view_embeddings[name]).all(axis=1), absent)
    page = directory.report.read_text()
    (table,) = re.findall(r'<table class="data" id="presence"[^>]*>.*?</table>', page, re.DOTALL)
    counts = [int(text) for text in re.findall(r'row" class="n">(\d+)<', table)]
    assert sum(counts) == 120
    in_view = re.findall(r'<td class="n">(\d+)</td>', table)
    assert [int(text) for text in in_view] == has.sum(axis=0).tolist()
    assert "imputed by" in page
    assert not re.search(r"\bnan\b", page)


def test_a_loaded_run_fills_missing_cells_as_its_fit_did() -> None:
    """Two tables of 90 samples with missing cells: 60 in the files old/*, the rest in new/*."""
    views, _ = gaussian_views(1, n_samples=90, spread=2.0, dims=(4, 6))
    rng = np.random.default_rng(2)
    new = {}
    for place in ("old", "new"):
        Path(place).mkdir()
    for name, view in zip("ab", views, strict=True):
        view[rng.random(view.shape) < 0.1] = np.nan
        frame = pd.DataFrame(view, index=pd.Index(IDS[:90], name="id")).add_prefix(name)
        new[name] = frame.iloc[60:]
        frame.iloc[:60].to_csv(f"old/{name}.csv")
        new[name].to_csv(f"new/{name}.csv")
    sources = 'source = ["old/a.csv", "old/b.csv"]\nimpute = "knn"'
    directory = again(write_tiny(Path(), QUIET, data=sources)).directory
    loaded = load_run(directory.path)
    stored = {view.name: view.read(0, 60) for view in open_store(directory.data).views}
    filled = {}
    for name, frame in new.items():
        imputer = KNNImputer().fit(stored[name])
        filled[name] = frame.copy()
        filled[name][:] = imputer.transform(frame.to_numpy())
    assert_array_equal(loaded.predict(new), loaded.predict(filled))
    assert_allclose(loaded.predict_proba(new), loaded.predict_proba(filled))
    table = predict_files(directory.path, ["new/a.csv", "new/b.csv"])
    assert table["cluster"].tolist() == loaded.predict(new).tolist()
    shutil.rmtree(directory.data)
    without_data = load_run(directory.path)
    assert_array_equal(without_data.predict(filled), loaded.predict(filled))
    with raises(DataError, "data.zarr"):
        without_data.predict(new)
