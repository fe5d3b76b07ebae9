"""A finished run as a model: what it predicts, and what is refused."""

from __future__ import annotations

import csv
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse.csgraph import connected_components

from mscam_dask import MSCAM, MSCAN, Constants, load_run
from mscam_dask.data import results
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.ingest import ingest
from mscam_dask.data.result_arrays import StoredArrays
from mscam_dask.data.results import read_model, write_result
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.errors import ConfigurationError, DataError, StoreCorruptError
from mscam_dask.estimators import _describe, _predict, _stored
from mscam_dask.pipeline.run import run as run_module
from mscam_dask.pipeline.run.doctor import check_run
from mscam_dask.pipeline.run.load_run import predict_files
from mscam_dask.pipeline.run.run import RunOutcome
from mscam_dask.pipeline.run.run_directory import RunDirectory
from mscam_dask.pipeline.run.sample_tables import encoded_id
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Solution, Structure
from mscam_dask.types.rules import SIZES
from tests.messages import quotes
from tests.pipeline.runs import HERE, again, labels_of
from tests.synthetic import save_npz, three_subspaces, values_of

pytestmark = pytest.mark.usefixtures("own_directory")

Write = Callable[[str], Path]
LARGE = {"consensus_graph", "learned_graph", "view_embeddings", "view_coordinates"}


def rewritten(outcome: RunOutcome, **changes: Any) -> None:
    """Change fields of run.json."""
    directory = outcome.directory
    directory.write_record(msgspec.structs.replace(directory.read_record(), **changes))


def samples_of(outcome: RunOutcome) -> list[dict[str, str]]:
    with outcome.directory.samples.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def same_model(loaded: Any, model: Any, new: Any) -> None:
    assert_array_equal(loaded.labels_, model.labels_)
    assert_array_equal(loaded.predict(new), model.predict(new))
    assert_array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert_array_equal(loaded.transform(new), model.transform(new))
    assert loaded.score(new) == model.score(new)
    assert_array_equal(loaded.membership_, model.membership_)
    assert_array_equal(loaded.confidence_, model.confidence_)
    assert loaded.view_votes_.keys() == model.view_votes_.keys()
    for view, votes in model.view_votes_.items():
        assert_array_equal(loaded.view_votes_[view], votes)
    for name in ("status_", "n_iter_", "n_neighbors_", "view_settings_", "excluded_views_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert loaded.cross_view_information_ == model.cross_view_information_
    assert loaded.solution_.parameters == model.solution_.parameters
    assert loaded.history_.drop_vars("seconds").equals(model.history_.drop_vars("seconds"))
    assert (loaded.consensus_graph_ != model.consensus_graph_).nnz == 0


@pytest.mark.parametrize(
    ("more", "estimator"),
    [
        ("", MSCAM(3, constants=Constants.paper(), max_iter=3, n_jobs=1)),
        ("method = 'mscan'\n", MSCAN(3, constants=Constants.paper(), max_iter=3, n_jobs=1)),
    ],
)
def test_a_loaded_run_is_the_estimator_of_the_fit(
    more: str, estimator: Any, pipeline: Write
) -> None:
    outcome = again(pipeline(more + HERE))
    loaded = load_run(outcome.directory.path)
    assert type(loaded) is type(estimator)
    model, new = estimator.fit(three_subspaces()), three_subspaces(45, seed=4)
    same_model(loaded, model, new)
    assert_array_equal(loaded.cluster_borders_, model.cluster_borders_)
    assert loaded.cluster_features(3) == model.cluster_features(3)
    assert_array_equal(loaded.fit(three_subspaces()).labels_, model.labels_)  # and fits again


def test_settings_that_were_selected_are_loaded(tiny: Path) -> None:
    file = Path("auto.toml")
    file.write_text(f"[data]\nsource = '{tiny.name}'\n[cluster]\nn_clusters = 'auto'\n{HERE}")
    loaded = load_run(again(file).directory.path)
    model = MSCAM("auto", n_jobs=1).fit(three_subspaces())
    same_model(loaded, model, three_subspaces(30, seed=2))
    assert loaded.n_clusters_curves_ is not None
    assert model.n_clusters_curves_ is not None
    assert loaded.n_clusters_curves_.equals(model.n_clusters_curves_)
    assert loaded.neighbor_overlap_ == model.neighbor_overlap_


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.DataWarning")
def test_one_cluster_without_structure_is_a_model_too() -> None:
    rng = np.random.default_rng(5)
    views = [rng.standard_normal((60, 4)), rng.standard_normal((60, 7))]
    ingest(as_multi_view(views), "noise.zarr")
    file = Path("noise.toml")
    file.write_text(f"[data]\nsource = 'noise.zarr'\n[cluster]\nn_clusters = 'auto'\n{HERE}")
    outcome = again(file)
    loaded = load_run(outcome.directory.path)
    model = MSCAM("auto", n_jobs=1).fit("noise.zarr")
    assert model.n_clusters_ == loaded.n_clusters_ == 1
    same_model(loaded, model, [rng.standard_normal((5, 4)), rng.standard_normal((5, 7))])
    assert loaded.structure_ is model.structure_ is Structure.NONE
    assert loaded.neighbor_overlap_ == model.neighbor_overlap_
    assert loaded.n_clusters_curves_ is not None
    assert loaded.n_clusters_curves_.attrs["chosen"] == 1
    assert loaded.cluster_features() == ()
    assert all(check.level == "ok" for _, check in check_run(outcome.directory.path))


def test_more_samples_than_are_stored_are_read_from_the_data(
    pipeline: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (_stored, _predict, _describe):
        monkeypatch.setattr(module, "SIZES", dataclasses.replace(SIZES, exact_samples=40))
    outcome = again(pipeline(HERE))
    model = read_model(outcome.directory.result)
    assert model is not None
    assert not any(key.startswith("coordinates") for key in model.arrays)
    loaded, new = load_run(outcome.directory.path), three_subspaces(45, seed=4)
    estimator = MSCAM(3, constants=Constants.paper(), max_iter=3, n_jobs=1).fit(three_subspaces())
    same_model(loaded, estimator, new)
    shutil.rmtree(outcome.directory.data)
    with pytest.raises(DataError, match=quotes("view_0", "data.zarr")):
        load_run(outcome.directory.path).predict(new)


@pytest.mark.thorough
def test_graphs_of_a_large_run_go_from_its_tasks_to_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = subspace_mixture(SIZES.exact_samples + 100, 3, (5, 6), rng=np.random.default_rng(0))
    save_npz(Path("large.npz"), data)
    file = Path("large.toml")
    file.write_text(
        "[data]\nsource = 'large.npz'\n[cluster]\nn_clusters = 3\nconstants.auto_settings = false\n"
        f"max_iter = 1\n[report]\nenabled = false\n{HERE}"
    )
    written: list[Solution] = []

    def noted(solution: Solution, *arguments: Any, **options: Any) -> Path:
        written.append(solution)
        assert isinstance(solution.arrays, StoredArrays)
        assert not LARGE & set(vars(solution.arrays))  # nothing of them was read
        return write_result(solution, *arguments, **options)

    monkeypatch.setattr("mscam_dask.pipeline.run.run.write_result", noted)
    directory = again(file).directory
    assert not list(directory.path.glob("*.partial"))
    loaded = load_run(directory.path)
    assert not LARGE & set(vars(loaded.solution_.arrays))
    (solution,) = written
    for name in ("consensus_graph", "learned_graph"):
        assert (getattr(loaded, f"{name}_") != getattr(solution, name)).nnz == 0
    components, _ = connected_components(loaded.consensus_graph_)
    assert components == loaded.n_connected_components_ == 3
    assert list(loaded.view_embeddings_) == ["view_0", "view_1"]


@pytest.mark.parametrize("as_url", [False, True])
def test_a_run_predicts_after_its_store_has_grown(tiny: Path, *, as_url: bool) -> None:
    store = ingest(tiny.name, "data.zarr").output
    place = store.as_uri() if as_url else store.name  # type: ignore[union-attr]
    file = Path("grows.toml")
    file.write_text(
        f"[data]\nsource = '{place}'\n[cluster]\nn_clusters = 3\nconstants.auto_settings = false\n{HERE}"
    )
    outcome = again(file)
    new = three_subspaces(30, seed=1)
    before = load_run(outcome.directory.path).predict(new)
    ingest(three_subspaces(90), "data.zarr", overwrite=True)
    loaded = load_run(outcome.directory.path)
    assert_array_equal(loaded.predict(new), before)
    with pytest.raises(DataError, match=quotes("view_0", "data.zarr", "changed")):
        loaded.cluster_features()


def test_links_and_moved_directories_are_loaded(pipeline: Write) -> None:
    outcome = again(pipeline(HERE))
    expected = load_run(outcome.directory.path).predict(three_subspaces(30))
    Path("link").symlink_to(outcome.directory.path)
    assert_array_equal(load_run("link").predict(three_subspaces(30)), expected)
    Path("link").unlink()
    shutil.move(outcome.directory.path, "moved")
    moved = load_run(Path("moved"))
    assert_array_equal(moved.predict(three_subspaces(30)), expected)
    assert moved.cluster_features(1)  # data.zarr moved too
    Path("nowhere").symlink_to("gone")
    with pytest.raises(ConfigurationError, match=quotes("nowhere", "gone")):
        load_run("nowhere")


def test_tables_of_a_run_are_read_back(tmp_path: Path) -> None:
    names = [f"p{i}" for i in range(60)]
    for view in three_subspaces().views:
        frame = pd.DataFrame(view.read(0, 60), index=pd.Index(names, name="sample"))
        frame.add_prefix("f").to_csv(f"{view.name}.csv")
    pipeline = (
        "[data]\nsource = ['view_0.csv', 'view_1.csv']\n{}"
        f"[cluster]\nn_clusters = 3\nconstants.auto_settings = false\nmax_iter = 2\n{HERE}"
    )
    Path("first.toml").write_text(pipeline.format(""))
    first = again(Path("first.toml")).directory
    for name in ("labels", "samples"):
        assert first.labels.with_stem(name).read_text().startswith("sample,cluster")
    given = f"labels = '{first.labels}'\n[report]\nenabled = true\ncolumns = '{first.samples}'\n"
    Path("second.toml").write_text(pipeline.format(given))
    record = again(Path("second.toml")).record
    assert record.metrics is not None
    assert record.metrics["accuracy"] == 1.0


def test_ids_and_names_of_columns_are_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    for name, width in (("genes", 4), ("sites", 6)):
        values = 10 * np.eye(3)[labels] @ rng.normal(size=(3, width)) + rng.normal(size=(60, width))
        header = ",".join(["id", *(f"{name}{i}" for i in range(width))])
        rows = [f"=p{i}," + ",".join(map(str, row)) for i, row in enumerate(values.tolist())]
        Path(f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    Path("p.toml").write_text(
        "[data]\nsource = ['genes.csv', 'sites.csv']\n"
        f"[cluster]\nn_clusters = 3\nconstants.auto_settings = false\nmax_iter = 2\n{HERE}"
    )
    outcome = again(Path("p.toml"))
    loaded = load_run(outcome.directory.path)
    assert loaded.sample_ids_ == tuple(f"=p{i}" for i in range(60))
    Path("new").mkdir()
    for name in ("genes", "sites"):
        lines = Path(f"{name}.csv").read_text().splitlines()
        Path(f"new/{name}.csv").write_text("\n".join([lines[0], *lines[5:9]]) + "\n")
    table = predict_files(outcome.directory.path, ["new/sites.csv", "new/genes.csv"])
    assert table["sample"].tolist() == [f"=p{i}" for i in range(4, 8)]
    assert table["cluster"].tolist() == loaded.labels_[4:8].tolist()
    assert samples_of(outcome)[4]["sample"] == encoded_id("=p4") == "'=p4"
    by_sites = predict_files(outcome.directory.path, ["new/sites.csv"])
    assert by_sites["sample"].equals(table["sample"])
    header, *rows = Path("new/genes.csv").read_text().splitlines()
    Path("new/genes.csv").write_text("\n".join([header.replace("genes2", "other"), *rows]))
    with pytest.raises(DataError, match=quotes("genes", "genes2", "other")):
        predict_files(outcome.directory.path, ["new/sites.csv", "new/genes.csv"])
    Path("new/genes.csv").write_text("\n".join(line.rpartition(",")[0] for line in [header, *rows]))
    with pytest.raises(DataError, match=quotes("'genes': 4", "'genes': 3")):
        predict_files(outcome.directory.path, ["new/sites.csv", "new/genes.csv"])


def test_labels_of_new_samples_are_not_needed(tiny: Path) -> None:
    with np.load(tiny) as archive:
        views = {name: archive[name] for name in ("view_0", "view_1")}
        np.savez("named.npz", allow_pickle=False, kinds=archive["labels"], **views)
    Path("p.toml").write_text(
        "[data]\nsource = 'named.npz'\nlabels = 'kinds'\nviews = {view_0 = 'a', view_1 = 'b'}\n"
        f"[cluster]\nn_clusters = 3\nconstants.auto_settings = false\nmax_iter = 2\n{HERE}"
    )
    run = again(Path("p.toml")).directory.path
    np.savez("new.npz", allow_pickle=False, **views)
    expected = load_run(run).predict({"a": views["view_0"], "b": views["view_1"]}).tolist()
    assert predict_files(run, ["new.npz"])["cluster"].tolist() == expected
    assert predict_files(run, ["named.npz"])["cluster"].tolist() == expected
    ingest("named.npz", "new.zarr", views={"view_1": "b", "view_0": "a"}, labels="kinds")
    assert predict_files(run, ["new.zarr"])["cluster"].tolist() == expected


def test_pairwise_views_take_distances_to_the_training_samples(tiny: Path) -> None:
    data = values_of(three_subspaces())
    kernel = data["view_0"] @ data["view_0"].T
    np.savez("pair.npz", allow_pickle=False, kernel=kernel, rest=data["view_1"])
    Path("p.toml").write_text(
        "[data]\nsource = 'pair.npz'\nview_type = {kernel = 'kernel'}\n"
        f"[cluster]\nn_clusters = 3\nconstants.auto_settings = false\nmax_iter = 2\n{HERE}"
    )
    loaded = load_run(again(Path("p.toml")).directory.path)
    model = MSCAM(
        3, constants=Constants.paper(), max_iter=2, view_type={"kernel": "kernel"}, n_jobs=1
    )
    model.fit({"kernel": kernel, "rest": data["view_1"]})
    new = {"kernel": kernel[:9], "rest": data["view_1"][:9]}
    assert_array_equal(loaded.predict(new), model.predict(new))
    with pytest.raises(DataError, match=quotes("score", "kernel")):
        loaded.score(new)


def test_a_run_is_loaded_with_the_names_of_its_clusters(
    pipeline: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = np.array([4, 0, 7])

    def renamed(_: object, solution: Any) -> Any:
        return dataclasses.replace(solution, labels=names[solution.labels])

    monkeypatch.setattr(run_module, "named_as_before", renamed)
    outcome = again(pipeline(HERE))
    model = MSCAM(3, constants=Constants.paper(), max_iter=3, n_jobs=1).fit(three_subspaces())
    new = three_subspaces(30)
    loaded = load_run(outcome.directory.path)
    assert_array_equal(loaded.predict(new), names[model.predict(new)])
    assert_array_equal(loaded.cluster_names_, [0, 4, 7])
    assert_array_equal(loaded.membership_, model.membership_[:, [1, 0, 2]])
    np.testing.assert_allclose(
        loaded.predict_proba(new), model.predict_proba(new)[:, [1, 0, 2]], atol=1e-12
    )
    assert {each.cluster for each in loaded.cluster_features(1)} == {0, 4, 7}
    rows = samples_of(outcome)
    assert [int(row["cluster"]) for row in rows] == names[model.labels_].tolist()
    assert [int(row["vote_view_0"]) for row in rows] == names[model.view_votes_["view_0"]].tolist()
    assert {row["next_cluster"] for row in rows} <= {"0", "4", "7"}


def test_samples_csv_and_parquet_hold_what_the_estimator_says(pipeline: Write) -> None:
    outcome = again(pipeline(HERE))
    loaded = load_run(outcome.directory.path)
    rows = samples_of(outcome)
    assert list(rows[0]) == [
        *("sample", "cluster", "confidence", "next_cluster", "vote_view_0", "vote_view_1"),
    ]
    assert [int(row["cluster"]) for row in rows] == labels_of(outcome).tolist()
    assert [int(row["sample"]) for row in rows] == list(range(60))
    np.testing.assert_allclose(
        [float(row["confidence"]) for row in rows], loaded.confidence_, atol=1e-6
    )
    others = loaded.membership_.copy()
    others[np.arange(60), loaded.labels_] = -1
    assert [int(row["next_cluster"]) for row in rows] == others.argmax(axis=1).tolist()
    for view, votes in loaded.view_votes_.items():
        assert [int(row[f"vote_{view}"]) for row in rows] == votes.tolist()
    frame = pytest.importorskip("pandas").read_parquet(outcome.directory.path / "samples.parquet")
    assert frame.columns.tolist() == list(rows[0])
    assert_array_equal(frame["confidence"], loaded.confidence_)
    assert_array_equal(frame["cluster"], loaded.labels_)


def test_one_cluster_has_no_next_one(pipeline: Write) -> None:
    file = pipeline(HERE)
    file.write_text(file.read_text().replace("n_clusters = 3", "n_clusters = 1"))
    outcome = again(file)
    assert {row["next_cluster"] for row in samples_of(outcome)} == {""}
    assert {row["confidence"] for row in samples_of(outcome)} == {"1.000000"}
    assert not load_run(outcome.directory.path).predict(three_subspaces(30)).any()


def test_a_reused_clustering_is_a_model_too(pipeline: Write) -> None:
    first = again(pipeline(HERE))
    second = again(pipeline(f"{HERE}[evaluate]\nenabled = false\n"))
    assert second.directory.path != first.directory.path
    assert second.directory.samples.read_bytes() == first.directory.samples.read_bytes()
    new = three_subspaces(30)
    assert_array_equal(
        load_run(second.directory.path).predict(new), load_run(first.directory.path).predict(new)
    )


def test_runs_of_the_time_when_there_was_another_solver(pipeline: Write) -> None:
    outcome = again(pipeline(HERE))
    expected = load_run(outcome.directory.path).predict(three_subspaces(30))
    assert outcome.record.settings is not None
    for solver in ("reduced", "reference"):
        cluster = outcome.record.settings["cluster"]
        parameters = {**cluster["parameters"], "solver": solver}
        then = {**outcome.record.settings, "cluster": {**cluster, "parameters": parameters}}
        rewritten(outcome, settings=then)
        if solver == "reduced":
            loaded = load_run(outcome.directory.path)
            assert_array_equal(loaded.predict(three_subspaces(30)), expected)
        else:
            with pytest.raises(DataError, match=quotes(outcome.directory.path, "solver")):
                load_run(outcome.directory.path)


def test_runs_of_the_time_when_constants_were_parameters(pipeline: Write) -> None:
    outcome = again(pipeline("constants.graph_weight = 0.5\nconstants.score_tie = 0.01\n" + HERE))
    expected = load_run(outcome.directory.path)
    assert outcome.record.settings is not None
    cluster = outcome.record.settings["cluster"]
    parameters = {**cluster["parameters"]}
    constants = parameters.pop("constants")
    parameters["tol"] = constants.pop("score_tie")
    parameters |= {name: value for name, value in constants.items() if name != "admm"}
    then = {**outcome.record.settings, "cluster": {**cluster, "parameters": parameters}}
    rewritten(outcome, settings=then)
    loaded = load_run(outcome.directory.path)
    assert loaded.constants == expected.constants
    assert expected.constants == Constants.paper(graph_weight=0.5, score_tie=0.01)
    record = msgspec.to_builtins(expected.solution_.parameters)
    flat = {**record.pop("constants"), **record}
    flat["tol"] = flat.pop("score_tie")
    again_whole = msgspec.convert(_stored.with_constants(flat), Parameters)
    assert again_whole == expected.solution_.parameters


def test_an_unfinished_run_is_refused(pipeline: Write) -> None:
    outcome = again(pipeline(HERE))
    rewritten(outcome, state="failed")
    with pytest.raises(DataError, match=quotes(outcome.directory.path, "failed", "resume")):
        load_run(outcome.directory.path)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=quotes(tmp_path, "run.json")):
        load_run(tmp_path)
    with pytest.raises(DataError, match=quotes("missing", "run.json")):
        load_run("missing")
    with pytest.raises(ConfigurationError, match=quotes("s3://bucket/run")):
        load_run("s3://bucket/run")


@pytest.mark.parametrize(
    ("part", "is_gone"), [("model/records", False), ("model/encoders/0/loadings", True)]
)
def test_a_damaged_model_is_refused_and_made_again(
    part: str, is_gone: bool, pipeline: Write
) -> None:
    outcome = again(pipeline(HERE))
    expected = load_run(outcome.directory.path).predict(three_subspaces(30))
    chunk = next(
        file
        for file in sorted((outcome.directory.result / part).rglob("*"))
        if file.is_file() and file.name != "zarr.json"
    )
    content = bytearray(chunk.read_bytes())
    chunk.unlink()  # it may be linked
    if not is_gone:
        content[len(content) // 2] ^= 8
        chunk.write_bytes(content)
    with pytest.raises(StoreCorruptError, match=quotes(chunk)):
        load_run(outcome.directory.path)
    again(pipeline(HERE))
    assert_array_equal(load_run(outcome.directory.path).predict(three_subspaces(30)), expected)


def test_labels_of_another_run_are_refused(pipeline: Write) -> None:
    outcome = again(pipeline(HERE))
    assert outcome.record.data is not None
    rewritten(outcome, data=msgspec.structs.replace(outcome.record.data, n_samples=61))
    with pytest.raises(DataError, match=quotes(outcome.directory.path, "result.zarr")):
        load_run(outcome.directory.path)


def test_another_version_is_refused_with_its_number(
    pipeline: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = again(pipeline(HERE))
    written, later = results.FORMAT_VERSION, results.FORMAT_VERSION + 1
    monkeypatch.setattr(results, "FORMAT_VERSION", later)
    monkeypatch.setattr(results, "_OLDEST_VERSION", later)
    with pytest.raises(DataError, match=quotes("result.zarr", written, later)):
        load_run(outcome.directory.path)
    monkeypatch.undo()
    settings = {**(outcome.record.settings or {})}
    settings["cluster"] = {"method": "mscam", "parameters": {"n_clusters": 3, "from_later": 1}}
    rewritten(outcome, settings=settings, versions={"mscam_dask": "9.1"})
    with pytest.raises(DataError, match=quotes(outcome.directory.path, "from_later", "9.1")):
        load_run(outcome.directory.path)


def test_a_result_without_a_model_is_refused(pipeline: Write) -> None:
    outcome = again(pipeline(HERE))
    shutil.rmtree(outcome.directory.result)
    estimator = MSCAM(3, constants=Constants.paper(), max_iter=3, n_jobs=1).fit(three_subspaces())
    write_result(estimator.solution_, outcome.directory.result)
    with pytest.raises(DataError, match=quotes("result.zarr", "--overwrite")):
        load_run(RunDirectory(outcome.directory.path).path)
