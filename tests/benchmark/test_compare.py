"""Comparisons from a file to the directory: rows, resumption, kills, failures and errors; the estimate before."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from mscam_dask import MSCAM
from mscam_dask.benchmark.config import read_experiment
from mscam_dask.benchmark.datasets import open_datasets
from mscam_dask.benchmark.experiment import method_runs, run_experiment, write_trial
from mscam_dask.benchmark.methods import GROUP, METHODS, known_methods
from mscam_dask.benchmark.report import write_experiment_report
from mscam_dask.benchmark.results import (
    LABEL_FREE_SCORES,
    PROTOCOLS,
    SCORES,
    ExperimentRecord,
    read_record,
)
from mscam_dask.benchmark.run_command import plan_experiment
from mscam_dask.data.store.dataset import open_store, write_store
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine.memory import plan_memory
from mscam_dask.errors import ConfigurationError, DataError, TemporaryFailure
from mscam_dask.estimators._describe import label_free_scores
from mscam_dask.metrics import score_partition
from mscam_dask.monitor.events import Event, StepFinished
from mscam_dask.pipeline.toml_document import parse_override
from mscam_dask.types.parameters import Parameters
from tests import processes
from tests.benchmark.conftest import Write
from tests.data.ingested import save_archive, save_group
from tests.processes import mscam, script_environment, started, wait_until
from tests.synthetic import three_subspaces, values_of

SMALL = """
[compare]
datasets = ['tiny.npz']
methods = ['knn-sc', 'sc-bsv']
runs = 2
protocols = ['defaults', 'grid']
[grid.knn-sc]
n_neighbors = [5, 10]
[grid.sc-bsv]
width_factor = [1.0]
"""


ONE = "[compare]\ndatasets = ['tiny.npz']\nmethods = ['knn-sc']\nruns = 1\n"


def run(file: Path, output: Path) -> tuple[ExperimentRecord, list[Event]]:
    events: list[Event] = []
    record = run_experiment(
        read_experiment(file), output, command="mscam-dask compare x", observer=events.append
    )
    return record, events


def trials_done(events: list[Event]) -> int:
    return sum(isinstance(event, StepFinished) for event in events)


def _check_tables(record: ExperimentRecord, output: Path) -> None:
    text = (output / "results.md").read_text()
    for protocol in ("defaults", "grid"):
        assert PROTOCOLS[protocol][1:] in text
    assert text.count("SC-BSV †") == 1
    assert "mscam-dask compare x" in text
    assert record.versions["numpy"] in text
    table = pd.read_csv(output / "results.csv")
    assert list(table.method) == [row.method for row in record.rows]
    assert list(table.accuracy_mean) == [row.scores["accuracy"].mean for row in record.rows]


@pytest.mark.thorough
def test_rows_trials_and_files(write: Write, here: Path) -> None:
    settings = read_experiment(write(SMALL))
    record, events = run(write(SMALL), here / "out")
    _check_tables(record, here / "out")
    copy = read_experiment(here / "out" / "pipeline.toml")
    assert copy.table == msgspec.structs.replace(settings.table, datasets=("tiny",))
    assert (copy.dataset, copy.grid) == (settings.dataset, settings.grid)
    assert record.state == "finished"
    assert [(row.method, row.protocol) for row in record.rows] == [
        ("knn-sc", "defaults"),
        ("knn-sc", "grid"),
        ("sc-bsv", "grid"),  # the view is chosen with labels
    ]
    for row in record.rows:
        assert (row.n_runs, row.n_failed) == (2, 0)
        mine = [
            trial
            for trial in record.trials
            if trial.method == row.method and trial.parameters == row.parameters
        ]
        assert len(mine) == 2
        values = [trial.scores["accuracy"] for trial in mine]
        assert row.scores["accuracy"].mean == pytest.approx(np.mean(np.array(values, float)))
        assert row.scores["accuracy"].std == pytest.approx(np.std(np.array(values, float), ddof=1))
    tried = [trial for trial in record.trials if trial.method == "knn-sc" and trial.seed == 0]
    assert record.rows[1].parameters in [
        trial.parameters
        for trial in tried
        if trial.scores["accuracy"] == max(each.scores["accuracy"] or 0.0 for each in tried)
    ]
    assert "view" in record.rows[2].parameters
    assert [bool(row.note) for row in record.rows] == [False, False, True]
    assert trials_done(events) == len(record.trials)
    assert {trial.shuffled for trial in record.trials if trial.seed == 0} == {False}
    assert {trial.shuffled for trial in record.trials if trial.seed == 1} == {True}
    on_disk = read_record(here / "out")
    assert on_disk.rows == record.rows
    assert len(list((here / "out" / "trials").glob("*/*.json"))) == len(record.trials)


@pytest.mark.thorough
def test_a_rerun_computes_only_the_missing_trials(write: Write, here: Path) -> None:
    first, _ = run(write(SMALL), here / "out")
    second, events = run(write(SMALL), here / "out")
    assert trials_done(events) == 0
    assert second.n_reused == len(first.trials)
    assert second.rows == first.rows
    assert {trial.key for trial in second.trials} == {trial.key for trial in first.trials}

    more = SMALL.replace("runs = 2", "runs = 3")
    third, events = run(write(more), here / "out")
    assert trials_done(events) == 3  # one more seed of the setting taken in each row
    assert third.n_reused == len(first.trials)
    assert {row.n_runs for row in third.rows} == {3}

    victim = sorted((here / "out" / "trials").glob("*/*.json"))[0]
    whole = victim.read_bytes()
    # as a fault of the disk would leave it
    victim.write_bytes(whole.replace(b'"ok"', b'"\xff\xfe"'))
    fourth, events = run(write(more), here / "out")
    assert trials_done(events) == 1
    assert fourth.n_reused == len(third.trials) - 1
    assert json.loads(victim.read_text())["outcome"] == "ok"


def test_damaged_records_are_errors_and_a_rerun_writes_that_of_the_experiment(
    write: Write, here: Path
) -> None:
    first, _ = run(write(ONE), here / "out")
    file = here / "out" / "experiment.json"
    file.write_bytes(b"[" * 100_000)
    with pytest.raises(DataError):
        read_record(here / "out")
    second, events = run(write(ONE), here / "out")
    assert trials_done(events) == 0
    assert read_record(here / "out").rows == second.rows == first.rows
    (trial,) = (here / "out" / "trials").glob("*/*.json")
    trial.unlink()
    trial.mkdir()
    with pytest.raises(DataError):
        run(write(ONE), here / "out")


def test_a_directory_of_something_else_is_not_touched(write: Write, here: Path) -> None:
    settings = read_experiment(write(ONE))
    before = sorted(here.rglob("*"))
    for output in (here, here / "tiny.npz"):
        with pytest.raises(ConfigurationError):
            run_experiment(settings, output)
    assert sorted(here.rglob("*")) == before


def test_view_types_of_a_data_set_are_those_it_is_clustered_with(write: Write, here: Path) -> None:
    rng, labels = np.random.default_rng(0), np.arange(60) % 3
    points = [np.eye(3)[labels] + rng.normal(size=(60, 3)) for _ in "ab"]  # scores are not 1
    distances = [cdist(rows, rows) for rows in points]
    results = {}
    for name, view_type in (
        ("features", "features"),
        ("distance", "distance"),
        ("requested", "features"),
    ):
        store = as_multi_view(distances, view_type=view_type)
        write_store(replace(store, labels=labels), here / f"{name}.zarr")
        text = ONE.replace("tiny.npz", "d") + f"[dataset.d]\nsource = '{name}.zarr'\n"
        text += "view_type = 'distance'\n" if name == "requested" else ""
        record, _ = run(write(text), here / name)
        results[name] = [(trial.key, trial.scores) for trial in record.trials]
    assert results["requested"] == results["distance"] != results["features"]


@pytest.mark.thorough
def test_the_seeds_of_the_runs_are_recorded(write: Write, here: Path) -> None:
    text, varies = ONE.replace("runs = 1\n", ""), set()
    for name, more, seeds, shuffled in (
        ("a", "runs = 2\n", (0, 1), {False, True}),
        ("b", "runs = 1\nseed = 7531\n", (7531,), {True}),
        ("c", "runs = 2\nseed = 7531\nshuffle = false\n", (7531, 7532), {False}),
    ):
        record, _ = run(write(text + more), here / name)
        assert record.seeds == seeds
        assert {trial.shuffled for trial in record.trials} == shuffled
        assert str(seeds[0]) in record.varies or seeds[0] == 0
        text_written = (here / name / "results.md").read_text()
        assert record.varies in text_written
        assert all(str(seed) in text_written for seed in seeds)
        varies.add(record.varies)
    assert len(varies) == 3


@pytest.mark.parametrize(("source", "overwrite"), [("tiny.npz", False), ("foreign.zarr", True)])
def test_sources_and_labels_that_change_make_the_store_anew(
    write: Write, here: Path, source: str, overwrite: bool
) -> None:
    """Labels of an archive in a file of their own, and rows of a directory."""
    data = three_subspaces()
    rows, labels = data.views[0].read(0, data.n_samples), data.labels
    shuffled = np.random.default_rng(0).permutation(len(labels))
    save_group(here / "foreign.zarr", view=rows, labels=labels)
    np.savetxt(here / "truth.txt", labels, fmt="%d")
    settings = read_experiment(
        write(
            "[compare]\ndatasets = ['ab']\nmethods = ['knn-sc']\nruns = 1\n"
            f"[dataset.ab]\nsource = '{source}'\n"
            + "labels = 'truth.txt'\n"
            * (source == "tiny.npz")
        )
    )
    first = run_experiment(settings, here / "out")
    store = here / "out" / "data" / "ab.zarr"
    made = store.stat().st_ino
    assert run_experiment(settings, here / "out").n_reused == 1
    assert store.stat().st_ino == made
    save_group(here / "foreign.zarr", view=rows[shuffled], labels=labels)
    np.savetxt(here / "truth.txt", labels[shuffled], fmt="%d")
    second = run_experiment(settings, here / "out", overwrite=overwrite)
    assert second.n_reused == 0
    before, after = (record.rows[0].scores["accuracy"].mean for record in (first, second))
    assert before > 0.85
    assert after < 0.7


@pytest.mark.thorough
def test_a_trial_over_time_ends_its_row_and_a_higher_limit_tries_again(
    write: Write, here: Path
) -> None:
    text = SMALL.replace("['knn-sc', 'sc-bsv']", "['knn-sc']")
    short, _ = run(write(text.replace("runs = 2", "runs = 2\ntime_limit_s = 0.001")), here / "out")
    assert {trial.outcome for trial in short.trials} == {"over time"}
    row = short.rows[0]
    assert row.n_failed == 2
    assert row.reasons[-1].startswith("1 ")
    again, events = run(
        write(text.replace("runs = 2", "runs = 2\ntime_limit_s = 0.001")), here / "out"
    )
    assert trials_done(events) == 0
    assert again.n_reused == len(short.trials)
    longer, _ = run(write(text), here / "out")
    assert {trial.outcome for trial in longer.trials} == {"ok"}
    assert longer.rows[0].n_failed == 0


def test_a_trial_with_a_temporary_failure_runs_again(write: Write, here: Path) -> None:
    record, _ = run(write(ONE), here / "out")
    for reason, n_again in (("Error: no", 0), ("TemporaryFailure: busy", 1)):
        failed = msgspec.structs.replace(record.trials[0], outcome="failed", reason=reason)
        write_trial(here / "out", failed)
        _, events = run(write(ONE), here / "out")
        assert trials_done(events) == n_again


@pytest.mark.parametrize(
    "text",
    [
        ONE.replace("tiny", "plain"),
        SMALL + "[dataset.'tiny.npz']\nsource = 'tiny.npz'\nn_clusters = 61",
        SMALL + "[parameters.knn-sc]\nscale = 'unti'",
        SMALL.replace("'sc-bsv'", "'mscam'") + "[grid.mscam]\nalpha = [1.0, -1.0]",
        SMALL + "[parameters.sc-bsv]\nview = 'colour'",
    ],
)
def test_invalid_settings_fail_before_any_fit(write: Write, here: Path, text: str) -> None:
    np.savez("plain.npz", allow_pickle=False, view_0=np.eye(9))
    events: list[Event] = []
    with pytest.raises(ConfigurationError):
        run_experiment(read_experiment(write(text)), here / "out", observer=events.append)
    assert trials_done(events) == 0
    assert not (here / "out" / "trials").exists()
    record = read_record(here / "out")
    assert record.state == "failed"


def test_robustness_draws_anew_for_each_run_and_gives_curves(write: Write, here: Path) -> None:
    text = (
        "[robustness]\nmethods = ['knn-sc', 'mscam']\nruns = 2\nn_samples = 60\n"
        "corruption_rate = [0.0, 0.5]\n[parameters.mscam]\nauto_settings = false\nmax_iter = 2\n"
    )
    record, _ = run(write(text), here / "out")
    assert record.kind == "robustness"
    assert [dataset.corruption_rate for dataset in record.datasets] == [0.0, 0.5]
    assert len(record.trials) == len({trial.key for trial in record.trials}) == 8
    curves = {curve.method: curve for curve in record.curves}
    assert curves["mscam"].paper == (0.874, 0.833)
    assert curves["knn-sc"].paper == (None, None)
    assert curves["knn-sc"].mean == tuple(
        row.scores["accuracy"].mean for row in record.rows if row.method == "knn-sc"
    )
    text = (here / "out" / "results.md").read_text()
    assert "| MSCAM, paper | 0.874 | 0.833 |" in text


def test_an_experiment_stopped_by_a_signal_resumes(write: Write, here: Path) -> None:
    settings = read_experiment(
        write("[compare]\ndatasets = ['tiny.npz']\nmethods = ['knn-sc']\nruns = 3\n")
    )

    def terminate(event: Event) -> None:
        if isinstance(event, StepFinished) and event.step == "1/2":  # a fit is left
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(TemporaryFailure):
        run_experiment(settings, here / "out", observer=terminate)
    record = read_record(here / "out")
    assert record.state == "interrupted"
    record = run_experiment(settings, here / "out")
    assert (record.state, record.n_reused) == ("finished", 2)


OWN = """
import numpy as np


class Halves:
    def __init__(self, n_clusters, random_state=None, column=0):
        self.n_clusters, self.random_state, self.column = n_clusters, random_state, column

    def fit(self, views, y=None):
        assert isinstance(views, list) and all(type(view) is np.ndarray for view in views)
        print("fitting", flush=True)  # not a result of the process
        order = np.argsort(np.argsort(views[0][:, self.column]))
        self.labels_ = order * self.n_clusters // len(order)
        return self


class NoClusters:
    def fit(self, views):
        return self
"""


def test_own_classes_are_compared(write: Write, here: Path) -> None:
    (here / "own_methods.py").write_text(OWN)
    text = (
        "[compare]\ndatasets = ['tiny.npz']\nmethods = ['own_methods:Halves', 'knn-sc']\nruns = 2\n"
    )
    record, _ = run(write(f"{text}[parameters.'own_methods:Halves']\ncolumn = 1\n"), here / "out")
    own, other = record.rows
    assert (own.method, own.parameters, own.n_failed) == ("own_methods:Halves", {"column": 1}, 0)
    assert other.method == "knn-sc"
    assert [method.title for method in record.methods] == ["Halves", "kNN-SC"]
    data = np.load(here / "tiny.npz")
    order = np.argsort(np.argsort(data["view_0"][:, 1]))
    expected = score_partition(data["labels"], order * 3 // 60).accuracy
    assert own.scores["accuracy"].mean == expected


def test_methods_of_entry_points_are_known(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "own_methods.py").write_text(OWN)
    installed = here / "own-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[{GROUP}]\nhalves = own_methods:Halves\n")
    monkeypatch.syspath_prepend(here)
    known = known_methods.__wrapped__()
    assert known["halves"].make(3, 7, {"column": 1}).random_state == 7
    assert set(known) == {"halves", *METHODS}  # an experiment runs METHODS by default


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("own_methods:Halfs", ""),
        ("no_module:Halves", ""),
        ("own_methods:NoClusters", ""),
        ("own_methods:Halves", "row = 1"),
    ],
)
def test_own_classes_that_cannot_be_compared_are_refused(
    name: str, parameters: str, write: Write, here: Path
) -> None:
    (here / "own_methods.py").write_text(OWN)
    text = f"[compare]\ndatasets = ['tiny.npz']\nmethods = ['{name}']\nruns = 1\n"
    with pytest.raises(ConfigurationError):
        read_experiment(write(f"{text}[parameters.'{name}']\n{parameters}\n"))


BARE = "[dataset.bare]\nsource = 'bare.npz'\nn_clusters = 3\n"


@pytest.fixture
def bare(here: Path) -> dict[str, NDArray[np.float64]]:
    """The views of bare.npz, which has no labels."""
    views = values_of(three_subspaces())
    save_archive(here / "bare.npz", **views)
    return views


@pytest.mark.thorough
def test_data_without_labels_are_compared_by_label_free_scores(
    write: Write, here: Path, bare: dict[str, NDArray[np.float64]]
) -> None:
    text = "[compare]\ndatasets = ['bare', 'tiny.npz']\nmethods = ['knn-sc', 'mscam']\nruns = 1\n"
    record, _ = run(write(text + BARE), here / "out")
    unlabeled, labeled = (
        [row for row in record.rows if row.dataset == name] for name in ("bare", "tiny")
    )
    model = MSCAM(3, n_jobs=1).fit(bare)
    expected = label_free_scores(as_multi_view(bare), model.labels_)
    for name in LABEL_FREE_SCORES:
        assert unlabeled[1].scores[name].mean == pytest.approx(expected[name])
        assert name not in labeled[0].scores
    assert expected["cross_view_information"] == pytest.approx(model.cross_view_information_)
    assert not set(SCORES) & set(unlabeled[0].scores)
    table = pd.read_csv(here / "out" / "results.csv")
    assert list(table.accuracy_mean.isna()) == [True, True, False, False]
    assert table.adjusted_modularity_mean[1] == unlabeled[1].scores["adjusted_modularity"].mean
    markdown = (here / "out" / "results.md").read_text()
    number = f"{unlabeled[1].scores['adjusted_modularity'].mean:.4f}"
    assert f"| {number} |" in markdown
    page = write_experiment_report(here / "out", record).read_text()
    assert f"{unlabeled[1].scores['adjusted_modularity'].mean:.3f}" in page


@pytest.mark.usefixtures("bare")
def test_nothing_is_chosen_with_labels_that_are_not_there(write: Write, here: Path) -> None:
    for more in ("methods = ['sc-bsv']\n", "methods = ['knn-sc']\nprotocols = ['grid']\n"):
        file = write(f"[compare]\ndatasets = ['bare']\nruns = 1\n{more}{BARE}")
        with pytest.raises(ConfigurationError):
            run(file, here / "out")
    settings = read_experiment(write(f"[compare]\ndatasets = ['bare']\nruns = 1\n{BARE}"))
    datasets = open_datasets(settings, here / "stores")
    runs = method_runs(settings, datasets)
    assert [each.method for each in runs] == [name for name in METHODS if "bsv" not in name]


SWEEP = "[sweep]\ndatasets = ['tiny.npz']\nalpha = [0.1]\ngraph_weight = [0.1]\nmax_iter = 1\n"


def test_each_worker_of_a_sweep_needs_what_a_whole_fit_needs(write: Write) -> None:
    file, out = write(SWEEP), Path("out")
    run_experiment(read_experiment(file), out)
    plan = plan_memory(open_store("out/data/tiny.zarr"), Parameters(n_clusters=3))
    needs = f"{plan.worker_bytes(1) / 2**30:.2f} GiB"
    apart = [parse_override("execution.in_process=false"), parse_override("execution.workers=4")]
    for overrides in ((), apart):
        settings = read_experiment(file, overrides)
        assert needs in dict(plan_experiment(settings, out))["Workers"]


TEXT = """
[compare]
datasets = ['tiny.npz', 'other.npz']
methods = ['knn-sc', 'smvsc']
runs = 5
"""


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("where", [["--in-process"], ["--workers", "1"]])
def test_a_killed_experiment_computes_only_the_missing_trials(
    write: Write, here: Path, where: list[str]
) -> None:
    command, env = mscam("compare", write(TEXT), "-o", "out", *where), script_environment()
    trials = here / "out" / "trials"
    with started(*command, log=here / "log", env=env, ends_by=(signal.SIGKILL,)) as process:
        wait_until(lambda: len(list(trials.glob("*/*.json"))) >= 6, alive=process)
    finished = {file: file.stat().st_mtime_ns for file in trials.glob("*/*.json")}
    assert 6 <= len(finished) < 20
    done = processes.run(*command, env=env, timeout=500)
    assert done.returncode == 0, done.stderr
    record = read_record(here / "out")
    assert record.state == "finished"
    assert record.n_reused == len(finished)
    assert len(record.trials) == 20
    assert all(row.n_failed == 0 for row in record.rows)
    assert {file: file.stat().st_mtime_ns for file in finished} == finished
