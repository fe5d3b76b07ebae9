"""Runs of one pipeline after each other: data that grew, names of clusters that stay, old runs that go."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from mscam_dask import load_run
from mscam_dask.cli.console import sizes_text
from mscam_dask.data.store.dataset import write_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import ConfigurationError
from mscam_dask.metrics import score_partition
from mscam_dask.monitor.events import StepFinished
from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.report import write_report
from mscam_dask.pipeline.run import RunOutcome
from mscam_dask.pipeline.run_directory import RunDirectory, hold_lock
from mscam_dask.pipeline.settings import Settings
from mscam_dask.pipeline.stored_run import StoredRun, list_runs, remove_old_runs
from tests.faults.memory_disk import traced
from tests.messages import raises
from tests.pipeline.runs import (
    QUIET,
    THREE,
    Write,
    again,
    at,
    labels_of,
    rewritten,
    stop,
    write_tiny,
)
from tests.synthetic import three_subspaces


class Growing:
    """A store of samples of three clusters that can be made longer, shorter or other."""

    def __init__(self, directory: Path) -> None:
        data = three_subspaces(90, seed=1)
        self.views = [np.asarray(view.read(0, 90)) for view in data.views]
        self.labels = np.asarray(data.labels)
        self.store = directory / "grown.zarr"
        self.file = directory / "grown.toml"
        incremental = "[incremental]\nenabled = true\nmax_warm_runs = 1\n"
        self.file.write_text(f"[data]\nsource = 'grown.zarr'\n{THREE}{QUIET}{incremental}")

    def change(self, old: str, new: str) -> None:
        self.file.write_text(self.file.read_text().replace(old, new))

    @staticmethod
    def names(rows: NDArray[np.int64]) -> tuple[str, ...]:
        return tuple(f"=s{row:02d}" for row in rows)  # like a formula of a spreadsheet

    def again(
        self,
        rows: NDArray[np.int64],
        *,
        ids: bool = True,
        names: tuple[str, ...] | None = None,
        **options: Any,
    ) -> RunOutcome:
        """Run the pipeline on these rows."""
        views = tuple(ArrayRows(view[rows], f"v{i}") for i, view in enumerate(self.views))
        names = (names or self.names(rows)) if ids else None
        data = MultiViewData(views, sample_ids=names, labels=self.labels[rows])
        write_store(data, self.store, overwrite=True)
        return again(self.file, **options)


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path)


def test_a_run_on_data_that_grew_starts_from_the_last_one(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    first = growing.again(np.arange(80))
    text = first.directory.labels.read_text()
    assert "\n=" not in text
    assert "=s01" in write_report(first.directory).read_text(encoding="utf-8")
    # another order: samples are known by their ids
    second = growing.again(np.arange(90)[::-1].copy())
    assert fits[0] == {}
    assert fits[1]["alpha"] == first.record.fit.setting.alpha
    drift = second.record.drift
    assert (drift.earlier, drift.start) == (first.directory.path.name, "warm")
    assert (drift.n_common, drift.n_new, drift.n_gone, drift.n_moved) == (80, 10, 0, 0)
    assert drift.sizes_before == first.record.fit.cluster_sizes
    assert sum(drift.sizes_after) == 90
    # cluster 3 stays cluster 3, wherever the sample is now
    np.testing.assert_array_equal(labels_of(second)[::-1][:80], labels_of(first))
    assert second.directory.moved.read_text() == "sample,before,after\n"
    assert not again(growing.file).resumed


def test_a_number_of_clusters_that_was_chosen_is_taken_over_until_a_fresh_start(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    growing.change("n_clusters = 3", "n_clusters = 'auto'")
    records = [growing.again(np.arange(n_samples)).record.fit for n_samples in (80, 85, 90)]
    assert [made.get("n_clusters") for made in fits] == [None, records[0].n_clusters, None]
    chosen = [record.n_clusters_curves is not None for record in records]
    assert chosen == [True, False, True]
    # a number that is given by now is not what was chosen then
    growing.change("n_clusters = 'auto'", "n_clusters = 3")
    assert again(growing.file).record.drift is None


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.DataWarning")
def test_one_cluster_without_structure_is_no_start_for_the_next_run(growing: Growing) -> None:
    growing.change("constants.auto_settings = false\n", "")
    growing.change("n_clusters = 3", "n_clusters = 'auto'")
    related, rng = growing.views, np.random.default_rng(0)
    growing.views = [rng.normal(size=view.shape) for view in related]
    nothing = growing.again(np.arange(80)).record.fit
    assert (nothing.n_clusters, nothing.status) == (1, "NO_STRUCTURE")
    growing.views = related
    found = growing.again(np.arange(90))
    assert (found.record.fit.n_clusters, found.record.drift.start) == (3, "cold")


def test_views_that_were_left_out_stay_so_in_the_next_run(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    growing.views.append(np.random.default_rng(0).standard_normal((90, 12)))
    growing.change("constants.auto_settings = false\n", "")
    said = []
    for n_samples in (80, 90):
        events: list[Any] = []
        outcome = growing.again(np.arange(n_samples), observers=[events.append])
        assert outcome.record.fit.setting.exclude_views == ("v2",)
        ended = [event for event in events if isinstance(event, StepFinished)]
        said.append(any("'v2'" in note for event in ended for note in event.notes))
    assert fits[1]["exclude_views"] == ("v2",)
    assert said == [True, False]  # handed down: known
    growing.change("[cluster]\n", "[cluster]\nexclude_views = ['v9']\n")
    with raises(ConfigurationError, "'v9'", "'v0'", "'v1'", "'v2'"):
        again(growing.file)


@pytest.mark.thorough
def test_clusters_keep_their_names_over_nights_whatever_their_number(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    """Six groups far apart, their number to be chosen; group 0, 1, ... in row % 6."""
    rng = np.random.default_rng(0)
    growing.labels = (np.arange(150) % 6).astype(np.int64)
    centers = 8.0 * np.eye(6)[growing.labels]
    growing.views = [centers + rng.normal(size=(150, 6)) for _ in range(2)]
    growing.change("n_clusters = 3", "n_clusters = 'auto'\nmax_clusters = 8\nalpha = 1.0")
    growing.change("[report]\nenabled = false\n", "")
    growing.change("max_warm_runs = 1\n", "max_warm_runs = 1\nmin_overlap = 0.3\n")
    first = labels_of(growing.again(np.arange(120)))
    group = {int(name): int(growing.labels[row]) for row, name in enumerate(first)}
    assert sorted(group) == list(range(6))
    kept = sorted(group)[3:]  # the clusters of the highest numbers stay, the others are gone
    stay = np.isin(growing.labels, [group[name] for name in kept])
    every = np.ones(150, dtype=bool)
    nights = [  # samples, start, number of clusters
        *((every, 126, "warm", 6), (stay, 129, "cold", 3), (stay, 132, "warm", 3)),
        (every, 135, "cold", 6),
    ]
    for rows, n_samples, start, n_clusters in nights:
        outcome = growing.again(np.flatnonzero(rows[:n_samples]))
        fit, drift = outcome.record.fit, outcome.record.drift
        assert (drift.start, fit.n_clusters, drift.n_moved) == (start, n_clusters, 0)
        labels = labels_of(outcome)
        names, sizes = np.unique(labels, return_counts=True)
        assert (fit.cluster_names, fit.cluster_sizes) == (tuple(names), tuple(sizes))
        assert dict(zip(drift.cluster_names, drift.sizes_after, strict=True)) == {
            **dict.fromkeys(drift.cluster_names, 0),
            **fit.sizes,
        }
        truth = growing.labels[:n_samples][rows[:n_samples]]
        of_kept = np.isin(truth, [group[name] for name in kept])
        np.testing.assert_array_equal([group[name] for name in labels[of_kept]], truth[of_kept])
        if fit.n_clusters == 3:
            assert sorted(fit.sizes) == kept
            shown = re.findall(r'data-pick="(\d+)"', outcome.directory.report.read_text())
            assert sorted({int(name) for name in shown}) == kept
            told = [int(number) for number in re.findall(r"\d+", sizes_text(fit))]
            assert sorted(told) == sorted([*fit.sizes, *fit.sizes.values()])
            loaded = load_run(outcome.directory.path)
            assert loaded.cluster_names_.tolist() == kept
            np.testing.assert_array_equal(loaded.predict(growing.store), labels)
            samples = pd.read_csv(outcome.directory.samples)
            for column in ("cluster", "next_cluster", "vote_v0", "vote_v1"):
                assert set(samples[column]) <= set(kept)
        handed = fits[-1].get("init_labels")
        assert handed is None or handed.max() < fit.n_clusters
        assert score_partition(truth, labels).accuracy == 1.0


def test_other_ids_of_the_same_rows_are_moved_or_new_samples(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    rows = np.arange(60)
    first = growing.again(rows)
    before = dict(zip(growing.names(rows), labels_of(first), strict=True))

    permuted = growing.names(np.random.default_rng(0).permutation(rows))
    second = growing.again(rows, names=permuted)
    after = dict(zip(permuted, labels_of(second), strict=True))
    moved = {name for name in before if before[name] != after[name]}
    drift = second.record.drift
    assert (drift.start, drift.earlier) == ("unchanged", first.directory.path.name)
    assert (drift.n_common, drift.n_new, drift.n_gone) == (60, 0, 0)
    assert drift.n_moved == len(moved) > 0
    lines = second.directory.moved.read_text().splitlines()[1:]
    assert {line.partition(",")[0].removeprefix("'") for line in lines} == moved
    page = write_report(second.directory).read_text(encoding="utf-8")
    assert all(name in page for name in moved)
    assert 'href="moved.csv"' in page

    drift = growing.again(rows, names=tuple(f"t{row:02d}" for row in rows)).record.drift
    assert (drift.n_common, drift.n_new, drift.n_gone, drift.n_moved) == (0, 60, 60, 0)
    assert len(fits) == 1


@pytest.mark.parametrize("key", ["batches", "partial_labels", "labels"])
def test_clusters_are_reused_only_if_they_depend_on_the_same_values(
    pipeline: Write, tmp_path: Path, fits: list[dict[str, Any]], key: str
) -> None:
    runs = [again(pipeline(QUIET))]
    for shift in range(2):
        values = (np.arange(60) + shift * (np.arange(60) < 30)) % 3
        (tmp_path / "column.txt").write_text("\n".join(map(str, values)))
        data = f"source = 'tiny.npz'\n{key} = 'column.txt'"
        runs.append(again(write_tiny(tmp_path, QUIET, data=data)))
    assert len({run.directory.path for run in runs}) == 3
    assert len(fits) == (1 if key == "labels" else 3)
    assert len({run.record.clustering_fingerprint for run in runs}) == len(fits)


def test_a_named_directory_has_no_run_before_it(growing: Growing, tmp_path: Path) -> None:
    with raises(ConfigurationError, "-o", tmp_path / "x", "output.root=DIR"):
        growing.again(np.arange(60), output=tmp_path / "x")
    growing.file.write_text(growing.file.read_text() + "[output]\ndirectory = 'x'\n")
    with raises(ConfigurationError, "[output] directory", tmp_path / "x"):
        again(growing.file)
    assert not (tmp_path / "x").exists()


def test_samples_without_ids_are_known_by_rows_that_did_not_change(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    growing.again(np.arange(80), ids=False)
    drift = growing.again(np.arange(90), ids=False).record.drift
    assert (drift.start, drift.n_new) == ("warm", 10)
    drift = growing.again(np.arange(90)[::-1].copy(), ids=False).record.drift
    assert (drift.start, drift.n_common, fits[2]) == ("cold", 0, {})
    assert drift.reason != ""


def test_a_run_starts_afresh_when_little_is_common_or_after_many_warm_ones(
    growing: Growing,
) -> None:
    growing.again(np.arange(30))
    drifts = [growing.again(np.arange(start, 90)).record.drift for start in (20, 19, 18)]
    starts = [(drift.start, drift.warm_runs) for drift in drifts]
    assert starts == [("cold", 0), ("warm", 1), ("cold", 0)]
    numbers = [re.findall(r"\d+%?", drift.reason) for drift in drifts]
    assert [found[:1] for found in numbers] == [["14%"], [], ["1"]]


def test_a_warm_run_that_was_cut_off_starts_from_the_same_run_again(growing: Growing) -> None:
    first = growing.again(np.arange(80))
    with pytest.raises(KeyboardInterrupt):
        growing.again(np.arange(85), observers=(at(lambda: stop(KeyboardInterrupt)),))
    outcome = again(growing.file)
    drift = outcome.record.drift
    assert (drift.start, drift.earlier) == ("warm", first.directory.path.name)
    assert outcome.record.resumed[0].after_iteration == 1


# --------------------------------------------------------------------------- old runs


@pytest.fixture
def keep_two(pipeline: Write, tmp_path: Path) -> Settings:
    root = tmp_path / "runs"
    more = f"[incremental]\nenabled = true\n[output]\nkeep = 2\nroot = '{root}'\n"
    return read_config(pipeline(more))


class Old:
    """Finished runs in the directories tiny-1, tiny-2, ..."""

    def __init__(self, settings: Settings, finished: RunDirectory) -> None:
        self.settings, self.finished = settings, finished
        self.root = Path(str(settings.output.root))

    def run(self, number: int, **more: Any) -> RunDirectory:
        path = shutil.copytree(self.finished.path, self.root / f"tiny-{number}")
        directory = RunDirectory(path)
        rewritten(
            directory,
            number=number,
            settings=msgspec.to_builtins(self.settings),
            **{"ended": f"2026-01-0{number}", **more},
        )
        return directory

    def runs(self, n_runs: int) -> list[RunDirectory]:
        return [self.run(number) for number in range(1, n_runs + 1)]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())


@pytest.fixture
def old(keep_two: Settings, finished: RunDirectory) -> Old:
    return Old(keep_two, finished)


def test_the_last_ones_stay_and_without_keep_all(
    old: Old, keep_two: Settings, pipeline: Write
) -> None:
    runs = old.runs(5)
    old.run(6, pipeline="other")
    everything = read_config(pipeline(f"[output]\nroot = '{old.root}'\n"))
    assert remove_old_runs(everything, runs[-1]) == ()
    assert remove_old_runs(keep_two, runs[-1]) == ("tiny-3", "tiny-2", "tiny-1")
    assert old.names() == ["tiny-4", "tiny-5", "tiny-6"]
    assert remove_old_runs(keep_two, runs[-1]) == ()


def test_what_the_next_run_starts_from_stays(old: Old, keep_two: Settings) -> None:
    methods = ("mscan", "mscam", "mscan", "mscan", "mscan")
    runs = [old.run(number, method=method) for number, method in enumerate(methods, start=1)]
    assert remove_old_runs(keep_two, runs[-1]) == ("tiny-3", "tiny-1")
    assert old.names() == ["tiny-2", "tiny-4", "tiny-5"]


def test_the_order_of_runs_is_that_of_their_numbers_whatever_their_dates(
    old: Old, pipeline: Write
) -> None:
    for number in range(1, 4):
        old.run(number, ended="2131-01-01" if number == 2 else "2026-01-09")
    output = f"[output]\nroot = '{old.root}'\nkeep = 2\n"
    nightly = pipeline(f"alpha = 2.0\n{QUIET}[incremental]\nenabled = true\n{output}")
    outcome = again(nightly)
    assert outcome.record.number == 4
    assert old.names() == sorted(["tiny-3", outcome.directory.path.name])


def test_what_somebody_needs_stays(old: Old, keep_two: Settings) -> None:
    runs = old.runs(6)
    old.run(7, state="interrupted", started_from="tiny-1")
    (runs[1].path / "notes.txt").touch()
    (old.root / "tiny-8").symlink_to(runs[5].path)
    with hold_lock(runs[2].path):
        assert remove_old_runs(keep_two, runs[5]) == ("tiny-4",)
    assert "tiny-2" in old.names()
    assert remove_old_runs(keep_two, runs[5]) == ("tiny-3",)
    assert old.names() == [f"tiny-{number}" for number in (1, 2, 5, 6, 7, 8)]


def test_a_removal_that_is_cut_off_anywhere_leaves_no_broken_run(
    old: Old, keep_two: Settings
) -> None:
    runs = old.runs(3)
    first = runs[0].path.rename(old.root / f"tiny-{1:012x}")  # as a run names its directory
    trace = traced(old.root, lambda: remove_old_runs(keep_two, runs[-1]))
    states = set()
    for cut in trace.cuts(most=16):
        listed, unreadable = list_runs(old.root)
        is_there = first.name in [run.name for run in listed]
        assert unreadable == {}, cut
        if is_there:
            assert StoredRun.read(first).integrity_problem() == "", cut
        states.add((is_there, len(old.names())))
        remove_old_runs(keep_two, runs[-1])
        assert old.names() == ["tiny-2", "tiny-3"], cut
    assert states >= {(True, 3), (False, 3)}
