"""Data that grew: a run starts from the one before, and its clusters keep their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.cli.console import sizes_text
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import ConfigurationError
from mscam_dask.metrics import score_partition
from mscam_dask.monitor.events import StepFinished
from mscam_dask.pipeline.run.previous_runs import renamed_clusters
from mscam_dask.pipeline.run.run import RunOutcome
from mscam_dask.types.events import IterationFinished
from tests.messages import quotes
from tests.pipeline.runs import HERE, again, labels_of
from tests.synthetic import three_subspaces

pytestmark = pytest.mark.usefixtures("own_directory")


class Growing:
    """A store of samples of three clusters that can be made longer, shorter or other."""

    def __init__(self, directory: Path) -> None:
        data = three_subspaces(90, seed=1)
        self.views = [np.asarray(view.read(0, 90)) for view in data.views]
        self.labels = np.asarray(data.labels)
        self.store = directory / "grown.zarr"
        self.file = directory / "grown.toml"
        self.file.write_text(
            "[data]\nsource = 'grown.zarr'\n[cluster]\nn_clusters = 3\nconstants.auto_settings = false\n"
            f"max_iter = 3\n{HERE}[incremental]\nenabled = true\nmax_warm_runs = 2\n"
        )

    @staticmethod
    def names(rows: NDArray[np.int64]) -> tuple[str, ...]:
        return tuple(f"s{row:02d}" for row in rows)

    def write(
        self, rows: NDArray[np.int64], *, ids: bool = True, names: tuple[str, ...] | None = None
    ) -> None:
        views = tuple(ArrayRows(view[rows], f"v{i}") for i, view in enumerate(self.views))
        names = (names or self.names(rows)) if ids else None
        data = MultiViewData(views, sample_ids=names, labels=self.labels[rows])
        write_store(data, self.store, overwrite=True)


def again_on(grown: Growing, rows: NDArray[np.bool_], n_samples: int) -> RunOutcome:
    grown.write(np.flatnonzero(rows[:n_samples]))
    return again(grown.file)


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path)


@pytest.mark.thorough
def test_a_run_on_data_that_grew_starts_from_the_last_one(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    growing.write(np.arange(80))
    first = again(growing.file)
    growing.write(np.arange(90)[::-1].copy())  # another order: samples are known by their ids
    second = again(growing.file)
    assert fits[0] == {}
    assert second.record.fit is not None
    assert first.record.fit is not None
    assert fits[1]["alpha"] == first.record.fit.setting.alpha
    drift = second.record.drift
    assert drift is not None
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
    text = growing.file.read_text()
    growing.file.write_text(text.replace("n_clusters = 3", "n_clusters = 'auto'"))
    outcomes = []
    for n_samples in (80, 85, 88, 90):
        growing.write(np.arange(n_samples))
        outcomes.append(again(growing.file))
    records = [outcome.record.fit for outcome in outcomes]
    assert records[0] is not None
    n_clusters = records[0].n_clusters
    assert [made.get("n_clusters") for made in fits] == [None, n_clusters, n_clusters, None]
    chosen = [record is not None and record.n_clusters_curves is not None for record in records]
    assert chosen == [True, False, False, True]
    # a number that is given by now is not what was chosen then
    growing.file.write_text(text)
    assert again(growing.file).record.drift is None


@pytest.mark.filterwarnings("ignore::mscam_dask.errors.DataWarning")
def test_one_cluster_without_structure_is_no_start_for_the_next_run(growing: Growing) -> None:
    text = growing.file.read_text().replace("constants.auto_settings = false\n", "")
    growing.file.write_text(text.replace("n_clusters = 3", "n_clusters = 'auto'"))
    related, rng = growing.views, np.random.default_rng(0)
    growing.views = [rng.normal(size=view.shape) for view in related]
    growing.write(np.arange(80))
    nothing = again(growing.file)
    growing.views = related
    growing.write(np.arange(90))
    found = again(growing.file).record
    assert nothing.record.fit is not None
    assert (nothing.record.fit.n_clusters, nothing.record.fit.status) == (1, "NO_STRUCTURE")
    assert found.fit is not None
    assert found.fit.n_clusters == 3
    assert found.drift is not None
    assert found.drift.start == "cold"


def test_views_that_were_left_out_stay_so_in_the_next_run(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    rng = np.random.default_rng(0)
    growing.views.append(rng.standard_normal((90, 12)))
    text = growing.file.read_text()
    growing.file.write_text(text.replace("constants.auto_settings = false\n", ""))
    records, said = [], []
    for n_samples in (80, 90):
        events: list[Any] = []
        growing.write(np.arange(n_samples))
        records.append(again(growing.file, observers=[events.append]).record)
        ended = [event for event in events if isinstance(event, StepFinished)]
        said.append(" ".join(note for event in ended for note in event.notes))
    assert all(record.fit is not None for record in records)
    assert [record.fit.setting.exclude_views for record in records if record.fit] == [("v2",)] * 2
    assert fits[1]["exclude_views"] == ("v2",)
    assert ["'v2'" in one for one in said] == [True, False]  # handed down: known
    growing.file.write_text(
        text.replace("constants.auto", "exclude_views = ['v9']\nconstants.auto")
    )
    with pytest.raises(ConfigurationError, match=quotes("'v9'", "'v0'", "'v1'", "'v2'")):
        again(growing.file)


def six_groups(directory: Path) -> Growing:
    """Samples of six groups far apart, their number to be chosen; group 0, 1, ... in row % 6."""
    rng = np.random.default_rng(0)
    labels = np.arange(150) % 6
    centres = 8.0 * np.eye(6)
    grown = Growing(directory)
    grown.labels = labels.astype(np.int64)
    grown.views = [centres[labels] + rng.normal(size=(150, 6)) for _ in range(2)]
    grown.file.write_text(
        "[data]\nsource = 'grown.zarr'\n[cluster]\nn_clusters = 'auto'\nmax_clusters = 8\n"
        "constants.auto_settings = false\nalpha = 1.0\nmax_iter = 2\n"
        f"{HERE}[incremental]\nenabled = true\nmax_warm_runs = 1\nmin_overlap = 0.3\n"
    )
    return grown


@pytest.mark.thorough
def test_clusters_keep_their_names_over_nights_whatever_their_number(
    tmp_path: Path, fits: list[dict[str, Any]]
) -> None:
    grown = six_groups(tmp_path)
    every = grown.labels < 6
    first = again_on(grown, every, 120)
    group = {int(name): int(grown.labels[row]) for row, name in enumerate(labels_of(first))}
    assert sorted(group) == list(range(6))
    kept = sorted(group)[3:]  # the clusters of the highest numbers stay, the others are gone
    stay = np.isin(grown.labels, [group[name] for name in kept])
    nights = [  # samples, start, number of clusters
        *((every, 126, "warm", 6), (stay, 129, "cold", 3), (stay, 132, "warm", 3)),
        *((every, 135, "cold", 6), (every, 138, "warm", 6), (stay, 144, "cold", 3)),
    ]
    for rows, n_samples, start, n_clusters in nights:
        outcome = again_on(grown, rows, n_samples)
        fit, drift = outcome.record.fit, outcome.record.drift
        assert fit is not None
        assert drift is not None
        assert (drift.start, fit.n_clusters, drift.n_moved) == (start, n_clusters, 0)
        labels = labels_of(outcome)
        names, sizes = np.unique(labels, return_counts=True)
        assert (fit.cluster_names, fit.cluster_sizes) == (tuple(names), tuple(sizes))
        assert drift.cluster_names is not None
        assert dict(zip(drift.cluster_names, drift.sizes_after, strict=True)) == {
            **dict.fromkeys(drift.cluster_names, 0),
            **fit.sizes,
        }
        truth = grown.labels[:n_samples][rows[:n_samples]]
        of_kept = np.isin(truth, [group[name] for name in kept])
        np.testing.assert_array_equal([group[name] for name in labels[of_kept]], truth[of_kept])
        if fit.n_clusters == 3:
            assert sorted(fit.sizes) == kept
            shown = re.findall(r'data-pick="(\d+)"', outcome.directory.report.read_text())
            assert sorted({int(name) for name in shown}) == kept
            told = [int(number) for number in re.findall(r"\d+", sizes_text(fit))]
            assert sorted(told) == sorted([*fit.sizes, *fit.sizes.values()])
        handed = fits[-1].get("init_labels")
        assert handed is None or handed.max() < fit.n_clusters
        assert score_partition(truth, labels).accuracy == 1.0


def test_other_ids_of_the_same_rows_are_moved_or_new_samples(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    rows = np.arange(60)
    growing.write(rows)
    first = again(growing.file)
    before = dict(zip(growing.names(rows), labels_of(first), strict=True))

    permuted = np.random.default_rng(0).permutation(rows)
    growing.write(rows, names=growing.names(permuted))
    second = again(growing.file)
    after = dict(zip(growing.names(permuted), labels_of(second), strict=True))
    moved = {name for name in before if before[name] != after[name]}
    drift = second.record.drift
    assert drift is not None
    assert (drift.start, drift.earlier) == ("unchanged", first.directory.path.name)
    assert (drift.n_common, drift.n_new, drift.n_gone) == (60, 0, 0)
    assert drift.n_moved == len(moved) > 0
    lines = second.directory.moved.read_text().splitlines()[1:]
    assert {line.partition(",")[0] for line in lines} == moved

    growing.write(rows, names=tuple(f"t{row:02d}" for row in rows))
    drift = again(growing.file).record.drift
    assert drift is not None
    assert (drift.n_common, drift.n_new, drift.n_gone, drift.n_moved) == (0, 60, 60, 0)
    assert len(fits) == 1


def test_a_named_directory_has_no_run_before_it(growing: Growing, tmp_path: Path) -> None:
    growing.write(np.arange(60))
    with pytest.raises(ConfigurationError, match=quotes("-o", tmp_path / "x", "output.root=DIR")):
        again(growing.file, output=tmp_path / "x")
    growing.file.write_text(growing.file.read_text() + "[output]\ndirectory = 'x'\n")
    with pytest.raises(ConfigurationError, match=quotes("[output] directory", tmp_path / "x")):
        again(growing.file)
    assert not (tmp_path / "x").exists()


def test_samples_without_ids_are_known_by_rows_that_did_not_change(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    growing.write(np.arange(80), ids=False)
    again(growing.file)
    growing.write(np.arange(90), ids=False)
    drift = again(growing.file).record.drift
    assert drift is not None
    assert (drift.start, drift.n_new) == ("warm", 10)
    growing.write(np.arange(90)[::-1].copy(), ids=False)
    drift = again(growing.file).record.drift
    assert drift is not None
    assert (drift.start, drift.n_common, fits[2]) == ("cold", 0, {})
    assert drift.reason != ""


def test_a_run_starts_afresh_when_little_is_common_or_after_many_warm_ones(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    starts, reasons = [], []
    for rows in (
        np.arange(30),
        np.arange(20, 90),
        np.arange(19, 90),
        np.arange(18, 90),
        np.arange(17, 90),
    ):
        growing.write(rows)
        drift = again(growing.file).record.drift
        starts.append(None if drift is None else (drift.start, drift.warm_runs))
        reasons.append("" if drift is None else drift.reason)
    assert starts == [None, ("cold", 0), ("warm", 1), ("warm", 2), ("cold", 0)]
    assert re.findall(r"\d+%?", reasons[1])[0] == "14%"
    assert reasons[2:4] == ["", ""]
    assert re.findall(r"\d+%?", reasons[4])[0] == "2"


def test_a_warm_run_that_was_cut_off_starts_from_the_same_run_again(growing: Growing) -> None:
    growing.write(np.arange(80))
    first = again(growing.file)
    growing.write(np.arange(85))

    def cut_off(event: object) -> None:
        if isinstance(event, IterationFinished):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again(growing.file, observers=(cut_off,))
    outcome = again(growing.file)
    drift = outcome.record.drift
    assert drift is not None
    assert (drift.start, drift.earlier) == ("warm", first.directory.path.name)
    assert outcome.record.resumed[0].after_iteration == 1


def test_clusters_that_split_or_vanish_keep_the_other_names(growing: Growing) -> None:
    known = np.array([2, 2, 2, 0, 0, 1, -1, -1])
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 1])
    np.testing.assert_array_equal(renamed_clusters(known, labels, 3), [2, 2, 2, 0, 0, 1, 1, 0])
    gone = np.array([2, 2, 2, 2, 2, -1, -1, -1])
    np.testing.assert_array_equal(
        renamed_clusters(gone, np.array([1, 1, 1, 0, 0, 2, 2, 2]), 3), [2, 2, 2, 0, 0, 1, 1, 1]
    )
