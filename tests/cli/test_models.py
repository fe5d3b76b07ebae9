"""`mscam-dask predict`, `mscam-dask runs`, and the exit code of drift."""

from __future__ import annotations

import re
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

from mscam_dask import load_run
from mscam_dask.metrics import adjusted_rand_index
from mscam_dask.pipeline.run import EXIT_DRIFT
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.stored_run import compare_runs, list_runs
from tests.cli.conftest import Call, numbers
from tests.messages import quotes
from tests.omics import anndata_of, writable_text
from tests.pipeline.runs import QUIET, THREE, rewritten, write_tiny
from tests.synthetic import gaussian_views, save_npz, three_subspaces


@pytest.fixture
def new(run: Path) -> str:
    """File of 30 other samples than those of the run."""
    save_npz(Path("new.npz"), three_subspaces(30, seed=2))
    return "new.npz"


def test_predict_writes_csv_and_parquet(run: Path, new: str, call: Call) -> None:
    model, samples = load_run(run), three_subspaces(30, seed=2)
    labels, membership = model.predict(samples), model.predict_proba(samples)
    result = call("predict", run, new)
    header, *rows = result.stdout.splitlines()
    assert header == "sample,cluster,confidence,next_cluster"
    assert [int(row.split(",")[1]) for row in rows] == labels.tolist()
    own = membership[np.arange(30), labels]
    np.testing.assert_allclose([float(row.split(",")[2]) for row in rows], own, atol=1e-6)
    shown = call("predict", run, new, "-o", "labels.csv")
    assert Path("labels.csv").read_text().splitlines() == [header, *rows]
    assert [str(size) for size in np.bincount(labels)] == re.findall(r"(\d+) in", shown.stdout)
    call("predict", run, new, "-o", "labels.parquet")
    frame = pd.read_parquet("labels.parquet")
    np.testing.assert_array_equal(frame["cluster"], labels)
    np.testing.assert_array_equal(frame["confidence"], own)


def test_what_predict_refuses(
    run: Path, new: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("predict", run, new, "-o")
    call(*arguments, "labels.txt", code=2)
    Path("labels.csv").write_text("mine")
    assert "--overwrite" in call(*arguments, "labels.csv", code=2).stderr
    assert Path("labels.csv").read_text() == "mine"
    call(*arguments, "labels.csv", "--overwrite")
    with np.load(new) as archive:
        np.savez("short.npz", allow_pickle=False, view_0=archive["view_0"])
        np.savez("wide.npz", allow_pickle=False, view_0=archive["view_1"], view_1=archive["view_1"])
    call("predict", run, "short.npz")  # a sample may be absent from a view
    wide = call("predict", run, "wide.npz", "-o", "out.csv", code=3)
    assert re.search(quotes("'view_0': 5", "'view_0': 8"), wide.stderr)
    assert not Path("out.csv").exists()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "mscam-dask[parquet]" in call(*arguments, "labels.parquet", code=2).stderr


@pytest.fixture
def three_runs(run: Path, original: Callable[[str], Path]) -> Path:
    """Runs one, two with another number of clusters, and three, which failed."""
    for name in ("two", "three"):
        shutil.copytree(original("cluster.n_clusters=2"), run.parent / name)
    rewritten(RunDirectory(run), started="2026-01-01T10:00:00+00:00")
    rewritten(RunDirectory(run.parent / "two"), started="2026-01-02T10:00:00+00:00")
    rewritten(
        RunDirectory(run.parent / "three"), started="2026-01-03T10:00:00+00:00", state="failed"
    )
    return run.parent


def names_in(result: Result) -> list[str]:
    return [line.split()[0] for line in result.stdout.splitlines()[1:] if line]


def test_runs_are_listed_and_filtered(three_runs: Path, call: Call) -> None:
    assert names_in(call("runs", "runs")) == ["one", "two", "three"]
    assert names_in(call("runs", "runs", "--status", "finished")) == ["one", "two"]
    both = ("--status", "failed", "--status", "running")
    assert names_in(call("runs", "runs", *both)) == ["three"]
    assert names_in(call("runs", "runs", "--since", "2026-01-02T11:00+01:00")) == ["two", "three"]
    assert names_in(call("runs", "runs", "--since", "2026-01-02T10:01")) == ["three"]
    assert names_in(call("runs", "runs", "--name", "t?o", "--name", "one")) == ["one", "two"]
    call("runs", "runs", "--since", "yesterday", code=2)
    call("runs", ".", code=3)
    rewritten(RunDirectory(three_runs / "one"), state="running")  # and no process runs it
    assert names_in(call("runs", "runs", "--status", "interrupted")) == ["one"]
    (three_runs / "two" / "run.json").write_text("{")
    listed = call("runs", "runs")
    assert names_in(listed)[:2] == ["one", "three"]
    assert re.search(quotes("two", "run.json"), listed.stdout)


def test_a_comparison_has_settings_scores_and_agreement(three_runs: Path, call: Call) -> None:
    runs, _ = list_runs(three_runs)
    compared = compare_runs(runs)
    assert compared.names == ("one", "two")
    assert compared.settings["cluster.n_clusters"] == (3, 2)
    labels = [load_run(three_runs / name).labels_ for name in compared.names]
    expected = adjusted_rand_index(*labels)
    assert compared.agreement == ((1.0, expected), (expected, 1.0))
    assert compared.n_common == ((60, 60), (60, 60))
    fits = [run.record.fit for run in runs[:2]]
    assert compared.scores["cross_view_information"] == tuple(fit.score for fit in fits if fit)
    assert ["2", "3"] in numbers(call("runs", "runs", "--compare").stdout)  # settings, sorted
    call("runs", "runs", "--compare", "--name", "one", code=2)


def test_agreement_is_on_common_samples(here: Path, call: Call) -> None:
    write_tiny(here, QUIET, data="source = 't.csv'", clusters=THREE.replace("3", "2", 1))
    for name, ids, side in (("a", range(40), 1), ("b", range(30, 60), 1), ("c", range(90, 130), 0)):
        kind = np.array([i % 2 if side else i // 20 % 2 for i in ids])
        table = {"id": [f"s{i}" for i in ids], "x": 10 * kind + np.array(ids) % 7 / 7, "y": kind}
        pd.DataFrame(table).to_csv("t.csv", index=False)
        call("run", "tiny.toml", "-o", f"runs/{name}")
    runs, _ = list_runs(Path("runs"))
    compared = compare_runs(runs)
    assert compared.n_common == ((40, 10, 0), (10, 30, 0), (0, 0, 40))
    assert compared.agreement[0] == (1.0, 1.0, None)


def test_the_index_page_links_reports_and_loads_nothing(three_runs: Path, call: Call) -> None:
    rewritten(
        RunDirectory(three_runs / "three"),
        error={"type": "DataError", "message": "<script>alert(1)"},
    )
    call("runs", "runs", "--html", "pages/index.html")
    page = Path("pages/index.html").read_text()
    assert 'href="../runs/one/report.html"' in page
    assert "<script>alert" not in page
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)=["']?(https?:|//)""", page)
    for run in ("one", "two", "three"):
        assert run in page
    agreement = compare_runs(list_runs(three_runs)[0]).agreement[0][1]
    assert f"{agreement:.3f}" in page
    (three_runs / "directory").mkdir()
    call("runs", "runs", "--html", "runs/directory", code=3)


def test_drift_above_the_limit_has_its_exit_code(here: Path, call: Call) -> None:
    (view,), labels = gaussian_views(0, n_samples=60, spread=2.0, dims=(4,))

    def write(rows: np.ndarray) -> None:
        pd.DataFrame(rows, [f"s{i}" for i in range(60)]).to_csv("d.csv", index_label="id")

    drifts = "[incremental]\nenabled = true\nmax_drift = 0.3\n"
    write_tiny(here, f"{QUIET}{drifts}", data="source = 'd.csv'")
    write(view)
    call("run", "tiny.toml")
    write(view[np.argsort(labels, kind="stable")])
    assert EXIT_DRIFT == 6
    result = call("run", "tiny.toml", code=EXIT_DRIFT)
    (last,) = [run for run in list_runs(Path("runs"))[0] if run.record.drift is not None]
    assert last.record.drift.share_moved > 0.3
    assert last.state == "finished"
    assert f"{last.record.drift.share_moved:.1%}" in result.stdout
    call("run", "tiny.toml", code=EXIT_DRIFT)  # nothing to do
    assert "reused" in call("run", "tiny.toml", "--set", "incremental.max_drift=0.99").stderr


@pytest.mark.parametrize(
    ("days", "are_counts"),
    [(["day1", "day2", "day3", "day4"], False), (range(20261126, 20261130), True)],
)
def test_batches_from_the_file_to_new_samples(
    here: Path, call: Call, days: Sequence[object], are_counts: bool
) -> None:
    first, second, third, fourth = map(str, days)
    rng = np.random.default_rng(0)
    kind, batch = np.arange(240) % 3, rng.integers(3, size=240)
    views = {
        name: (5 * rng.normal(size=(3, 12)))[kind]
        + rng.normal(size=(240, 12))
        + (4 * rng.normal(size=(3, 12)))[batch]
        for name in ("rna", "protein")
    }
    if are_counts:
        for rows in views.values():
            rows[:] = rng.poisson(np.exp(1.0 + 0.3 * rows))
    old = batch < 2
    np.savez("old.npz", rna=views["rna"][old], protein=views["protein"][old])
    np.savez("new.npz", rna=views["rna"][~old], protein=views["protein"][~old])
    Path("batches.csv").write_text("\n".join(np.array([first, second])[batch[old]]))
    Path("later.csv").write_text(f"{third}\n" * np.count_nonzero(~old))
    data = "source = 'old.npz'\nbatches = 'batches.csv'"
    write_tiny(here, QUIET, data=data, clusters="[cluster]\nn_clusters = 3\n")
    made = call("run", "tiny.toml", "-o", "runs/b")
    assert f"{second} ({np.count_nonzero(batch == 1)})" in " ".join(made.stderr.split())
    assert "Batches The effects of 2 batches were removed" in " ".join(made.stdout.split())
    model, record = load_run("runs/b"), RunDirectory(here / "runs" / "b").read_record()
    assert adjusted_rand_index(kind[old], model.labels_) == 1.0
    entry = record.fit.batches
    assert (entry.names, entry.is_corrected) == ((first, second), True)
    assert np.sum(entry.counts, axis=0).tolist() == np.bincount(batch[old]).tolist()
    result = call("predict", "runs/b", "new.npz", "--batches", "later.csv")
    found = [int(row.split(",")[1]) for row in result.stdout.splitlines()[1:]]
    assert adjusted_rand_index(kind[~old], np.array(found)) == 1.0
    Path("later.csv").write_text(
        "row,batch\n" + "".join(f"{row},{third}\n" for row in range(len(found)))
    )
    result = call("predict", "runs/b", "new.npz", "--batches", "later.csv")
    assert "later.csv: batches by row." in result.stderr
    call("predict", "runs/b", "new.npz", code=3)
    Path("later.csv").write_text(Path("later.csv").read_text().replace(f"1,{third}", "1,", 1))
    result = call("predict", "runs/b", "new.npz", "--batches", "later.csv", code=3)
    assert "batches has no value for 1 sample(s)" in result.stderr
    Path("later.csv").write_text(f"{fourth}\n" * 2 + f"{third}\n" * (np.count_nonzero(~old) - 2))
    with warnings.catch_warnings(action="error"):
        result = call("predict", "runs/b", "new.npz", "--batches", "later.csv")
    notes = [line for line in result.stderr.splitlines() if fourth in line]
    assert len(notes) == 1
    assert notes[0].startswith("Note: ")


def test_empty_cells_are_no_batches(here: Path, call: Call) -> None:
    n_samples = len(next(iter(np.load("tiny.npz").values())))
    pd.Series(["u", "v", ""] * n_samples)[:n_samples].to_csv("batch.csv", index_label="")
    write_tiny(here, QUIET, data="source = 'tiny.npz'\nbatches = 'batch.csv'")
    result = call("run", "tiny.toml", "-o", "runs/b", code=3)
    n_missing = n_samples // 3
    assert f"{n_samples - n_missing} of {n_samples} samples have a batch: u (" in result.stderr
    assert f"batches has no value for {n_missing} sample(s)" in result.stderr


@pytest.mark.parametrize("form", ["-1", "empty cells", "known samples only", "column of obs"])
def test_known_labels_beside_the_views(here: Path, call: Call, form: str) -> None:
    rng = np.random.default_rng(0)
    kind = np.arange(120) % 3
    views = [6 * np.eye(3)[kind] + rng.normal(size=(120, 3)) for _ in "ab"]
    known = np.array(["x", "y", "z"], dtype=object)[(kind + 1) % 3]
    known[30:] = None
    known[0] = "y" if known[0] != "y" else "x"  # one sample in the cluster of another class
    ids = [f"P{row}" for row in range(120)]
    np.savez("a.npz", a=views[0], b=views[1], sample_ids=ids)
    column = pd.Series(known, ids, name="kind")
    source, place = "a.npz", "known.csv"
    if form == "-1":
        Path(place).write_text("\n".join(column.fillna("-1")))
    elif form == "column of obs":
        source, place = "a.h5ad", "kind"
        made = anndata_of(np.hstack(views), ids)
        with writable_text():
            made.obs["kind"] = column.astype(object)
            made.write_h5ad("a.h5ad")
    else:
        column = column.dropna() if form == "known samples only" else column
        column.iloc[::-1].to_csv(place, index_label="id")
    data = f"source = '{source}'\npartial_labels = '{place}'"
    write_tiny(here, QUIET, data=data)
    result = call("run", "tiny.toml", "-o", "runs/k")
    screen = " ".join(result.output.split())
    assert "30 of 120 samples have a known label: x (1" in screen
    assert ("is taken for 'P0'" in screen) == (form == "-1")
    labels = load_run("runs/k").labels_
    assert adjusted_rand_index(kind[1:], labels[1:]) == 1.0
    assert labels[0] == labels[known == known[0]][1]
    call("report", "runs/k")
    report = Path("runs/k/report.html").read_text()
    for name in "xyz":
        (cluster,) = set(labels[known == name])
        assert f"{name} is cluster {cluster}" in screen
        assert f"{name} is cluster {cluster}" in report
    assert "with known labels of some samples" in report
    assert "views, without labels" not in report
    if form in ("empty cells", "known samples only"):  # ground truth has to be whole
        call("ingest", "a.npz", "-o", "a.zarr", "--labels", "known.csv", code=3)
