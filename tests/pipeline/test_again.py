"""Safe to run twice: what was done is not done again, what was cut off is gone on with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.cli.terminal import sizes_text
from mscam_dask.data.ingest import ingest
from mscam_dask.data.multiview import MultiViewData
from mscam_dask.data.results import read_result
from mscam_dask.data.sources import ArrayRows
from mscam_dask.data.store_writer import write_store
from mscam_dask.errors import ConfigurationError, DataError
from mscam_dask.metrics import score_partition
from mscam_dask.model.records import OuterRecord
from mscam_dask.pipeline import steps
from mscam_dask.pipeline.again import find_place, run_again
from mscam_dask.pipeline.config import read_config
from mscam_dask.pipeline.environment import environment_overrides
from mscam_dask.pipeline.identity import run_id
from mscam_dask.pipeline.resume import resume_run
from mscam_dask.pipeline.run import RunOutcome
from mscam_dask.pipeline.run_directory import RunDirectory
from tests.synthetic import three_subspaces

Write = Callable[[str], Path]

HERE = "[execution]\nin_process = true\nthreads = 1\n"
QUIET = f"{HERE}[report]\nenabled = false\n"


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The fits that were made, by what was handed down to them."""
    made: list[dict[str, Any]] = []
    fit = steps.cluster

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(dict(options["handed_down"] or {}))
        return fit(*arguments, **options)

    monkeypatch.setattr(steps, "cluster", counted)
    return made


def again(file: Path, **options: Any) -> RunOutcome:
    return run_again(read_config(file), **options)


def times(directory: Path) -> dict[Path, int]:
    """When each file was written; the lock says who held the directory last."""
    files = (file for file in directory.rglob("*") if file.name != ".lock")
    return {file: file.stat().st_mtime_ns for file in files}


def labels_of(outcome: RunOutcome) -> NDArray[np.int64]:
    return np.loadtxt(
        outcome.directory.labels, delimiter=",", skiprows=1, usecols=1, dtype=np.int64
    )


def test_the_same_twice_is_done_once(pipeline: Write, fits: list[Any], tmp_path: Path) -> None:
    first = again(pipeline(HERE))
    before = times(first.directory.path)
    second = again(pipeline(HERE))
    assert (first.resumed, second.resumed) == (True, False)
    assert second.record == first.record
    assert len(fits) == 1
    assert times(first.directory.path) == before
    assert first.directory.path.parent == tmp_path / "runs"
    assert first.directory.path.name == f"tiny-{run_id(read_config(pipeline(HERE)))[:12]}"


def test_where_and_by_what_a_run_is_computed_is_no_part_of_it(
    pipeline: Write, tmp_path: Path, tiny: Path
) -> None:
    here = run_id(read_config(pipeline(HERE)))
    assert run_id(read_config(pipeline("[execution]\nworkers = 2\n[output]\nroot = 'x'\n"))) == here
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / tiny.name
    moved.write_bytes(tiny.read_bytes())
    file = pipeline(HERE)
    file.write_text(file.read_text().replace(f"'{tiny.name}'", f"'elsewhere/{tiny.name}'"))
    assert run_id(read_config(file)) == here
    assert run_id(read_config(pipeline(f"alpha = 2.0\n{HERE}"))) != here
    with np.load(tiny) as arrays:
        np.savez(tiny, allow_pickle=False, **{name: arrays[name][::-1] for name in arrays})
    assert run_id(read_config(pipeline(HERE))) != here


def test_overwrite_does_it_again(pipeline: Write, fits: list[Any]) -> None:
    again(pipeline(HERE))
    outcome = again(pipeline(HERE), overwrite=True)
    assert outcome.resumed
    assert len(fits) == 2


def test_only_what_depends_on_a_change_is_done_again(
    pipeline: Write, fits: list[Any], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = again(pipeline(HERE))
    off = again(pipeline(f"{HERE}[evaluate]\nenabled = false\n"))
    assert off.directory.path != first.directory.path
    assert (off.record.metrics, len(fits)) == (None, 1)
    assert first.record.metrics is not None
    np.testing.assert_array_equal(labels_of(off), labels_of(first))

    with np.load(tiny) as arrays:  # other labels, same views
        held = {name: arrays[name] for name in arrays}
    np.savez(tiny, allow_pickle=False, **{**held, "labels": np.roll(held["labels"], 1)})
    relabelled = again(pipeline(HERE))
    assert len(fits) == 1
    assert relabelled.record.metrics is not None
    assert relabelled.record.metrics != first.record.metrics
    assert relabelled.directory.result.is_dir()

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("ingested again")

    monkeypatch.setattr("mscam_dask.pipeline.sources.ingest", refuse)
    again(pipeline(f"alpha = 2.0\n{HERE}"))
    assert len(fits) == 2


def test_what_is_taken_over_outlives_the_run_it_came_from(pipeline: Write) -> None:
    first = again(pipeline(HERE))
    second = again(pipeline(f"{HERE}[evaluate]\nenabled = false\n"))
    expected = labels_of(first)
    for file in sorted(first.directory.path.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    third = again(pipeline(f"{HERE}[evaluate]\nenabled = false\n"))
    assert not third.resumed
    np.testing.assert_array_equal(labels_of(second), expected)


def test_a_damaged_result_is_not_taken_over(pipeline: Write, fits: list[Any]) -> None:
    first = again(pipeline(HERE))
    chunk = next(
        file for file in (first.directory.result / "labels").rglob("c/*") if file.is_file()
    )
    chunk.write_bytes(chunk.read_bytes()[:-2])
    again(pipeline(f"{HERE}[evaluate]\nenabled = false\n"))
    assert len(fits) == 2


def _missing(directory: RunDirectory) -> None:
    directory.labels.unlink()
    shutil.rmtree(directory.result)


def _garbage(directory: RunDirectory) -> None:
    directory.labels.write_bytes(b"\x00\xff,\r")


def _of_other_clusters(directory: RunDirectory) -> None:
    lines = directory.labels.read_text().splitlines()
    lines[1] = lines[1][:-1] + ("0" if lines[1][-1] != "0" else "1")
    directory.labels.write_text("\n".join(lines))


def _cut_short(directory: RunDirectory) -> None:
    chunk = next(file for file in directory.result.glob("labels/c/*") if file.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-2])


def _with_the_data(directory: RunDirectory) -> None:
    _missing(directory)
    shutil.rmtree(directory.data)


@pytest.mark.parametrize(
    ("command", "harm", "says"),
    [
        ("run", _missing, "labels.csv and result.zarr are missing"),
        ("resume", _garbage, "labels.csv is no list of samples and clusters"),
        ("run", _of_other_clusters, "labels.csv has not the clusters of result.zarr"),
        ("run", _cut_short, "is damaged"),
        ("resume", _with_the_data, "are missing"),
    ],
)
def test_results_that_are_gone_or_damaged_are_made_again(
    pipeline: Write,
    fits: list[Any],
    tmp_path: Path,
    command: str,
    harm: Callable[[RunDirectory], None],
    says: str,
) -> None:
    first = again(pipeline(QUIET), output=tmp_path / "out")
    expected = labels_of(first)
    harm(first.directory)
    place = find_place(read_config(pipeline(QUIET)), tmp_path / "out")
    assert place.action == "resume"
    outcome = (
        again(pipeline(QUIET), output=tmp_path / "out")
        if command == "run"
        else resume_run(tmp_path / "out")
    )
    assert outcome.resumed
    assert len(fits) == 2
    assert (outcome.record.state, outcome.record.fit) == ("finished", first.record.fit)
    (entry,) = outcome.record.resumes
    assert entry.state == "finished"
    assert says in entry.warnings[0]
    np.testing.assert_array_equal(labels_of(outcome), expected)
    np.testing.assert_array_equal(read_result(outcome.directory.result).labels, expected)
    assert not again(pipeline(QUIET), output=tmp_path / "out").resumed


def test_a_run_that_was_cut_off_is_gone_on_with(pipeline: Write) -> None:
    def cut_off(event: object) -> None:
        if isinstance(event, OuterRecord):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again(pipeline(HERE), observers=(cut_off,))
    outcome = again(pipeline(HERE))
    assert outcome.record.state == "finished"
    assert len(outcome.record.resumes) == 1
    assert outcome.record.resumes[0].after_iteration == 1
    assert not again(pipeline(HERE)).resumed


def test_a_named_directory_holds_one_run(pipeline: Write, tmp_path: Path) -> None:
    assert again(pipeline(HERE), output=tmp_path / "x").resumed
    assert not again(pipeline(HERE), output=tmp_path / "x").resumed
    with pytest.raises(ConfigurationError, match="--overwrite"):
        again(pipeline(f"alpha = 2.0\n{HERE}"), output=tmp_path / "x")
    place = find_place(read_config(pipeline("[output]\ndirectory = 'y'\n")))
    assert (place.directory, place.action) == (tmp_path / "y", "run")


def test_keep_removes_the_oldest_and_what_was_computed_stays_known(
    pipeline: Write, fits: list[Any]
) -> None:
    directories = [
        again(pipeline(f"alpha = {alpha}\n{QUIET}[output]\nkeep = 2\n")).directory.path
        for alpha in (1.0, 2.0, 3.0)
    ]
    assert [path.is_dir() for path in directories] == [False, True, True]
    assert not again(pipeline(f"alpha = 3.0\n{QUIET}")).resumed
    assert again(pipeline(f"alpha = 1.0\n{QUIET}")).resumed
    assert len(fits) == 4


def test_a_source_that_is_missing_is_a_data_error(pipeline: Write, tiny: Path) -> None:
    tiny.unlink()
    with pytest.raises(DataError, match=r"tiny\.npz"):
        again(pipeline(HERE))


# -- incremental -------------------------------------------------------------------------------


class Growing:
    """A store of samples of three clusters that can be made longer, shorter or other."""

    def __init__(self, directory: Path) -> None:
        data = three_subspaces(90, seed=1)
        self.views = [np.asarray(view.read(0, 90)) for view in data.views]
        self.labels = np.asarray(data.labels)
        self.store = directory / "grown.zarr"
        self.file = directory / "grown.toml"
        self.file.write_text(
            "[data]\nsource = 'grown.zarr'\n[cluster]\nn_clusters = 3\nselection = 'none'\n"
            f"max_outer_iter = 3\n{HERE}[incremental]\nenabled = true\nfresh_after = 2\n"
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
    chosen = [record is not None and record.cluster_counts is not None for record in records]
    assert chosen == [True, False, False, True]
    # a number that is given by now is not what was chosen then
    growing.file.write_text(text)
    assert again(growing.file).record.drift is None


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
        "selection = 'none'\nalpha = 1.0\nmax_outer_iter = 2\n"
        f"{HERE}[incremental]\nenabled = true\nfresh_after = 1\nleast_common = 0.3\n"
    )
    return grown


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
            assert "3 clusters of" in outcome.directory.report.read_text()
            assert " in cluster 5" in sizes_text(fit)
        handed = fits[-1].get("initial_labels")
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
    with pytest.raises(ConfigurationError, match=r"-o names .*output\.root=DIR"):
        again(growing.file, output=tmp_path / "x")
    growing.file.write_text(growing.file.read_text() + "[output]\ndirectory = 'x'\n")
    with pytest.raises(ConfigurationError, match=r"\[output\] directory names .*/x"):
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
    assert "first rows are not those" in drift.reason


def test_a_run_starts_afresh_when_little_is_common_or_after_many_warm_ones(
    growing: Growing, fits: list[dict[str, Any]]
) -> None:
    starts = []
    for rows in (
        np.arange(30),
        np.arange(20, 90),
        np.arange(19, 90),
        np.arange(18, 90),
        np.arange(17, 90),
    ):
        growing.write(rows)
        drift = again(growing.file).record.drift
        starts.append("" if drift is None else f"{drift.start} {drift.warm_runs} {drift.reason}")
    assert starts[0] == ""
    assert starts[1].startswith("cold 0 14% of the samples")
    assert starts[2:4] == ["warm 1 ", "warm 2 "]
    assert starts[4].startswith("cold 0 2 runs in a row")


def test_a_warm_run_that_was_cut_off_starts_from_the_same_run_again(growing: Growing) -> None:
    growing.write(np.arange(80))
    first = again(growing.file)
    growing.write(np.arange(85))

    def cut_off(event: object) -> None:
        if isinstance(event, OuterRecord):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again(growing.file, observers=(cut_off,))
    outcome = again(growing.file)
    drift = outcome.record.drift
    assert drift is not None
    assert (drift.start, drift.earlier) == ("warm", first.directory.path.name)
    assert outcome.record.resumes[0].after_iteration == 1


def test_clusters_that_split_or_vanish_keep_the_other_names(growing: Growing) -> None:
    from mscam_dask.pipeline.drift import renamed_clusters

    known = np.array([2, 2, 2, 0, 0, 1, -1, -1])
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 1])
    np.testing.assert_array_equal(renamed_clusters(known, labels, 3), [2, 2, 2, 0, 0, 1, 1, 0])
    gone = np.array([2, 2, 2, 2, 2, -1, -1, -1])
    np.testing.assert_array_equal(
        renamed_clusters(gone, np.array([1, 1, 1, 0, 0, 2, 2, 2]), 3), [2, 2, 2, 0, 0, 1, 1, 1]
    )


# -- the environment ---------------------------------------------------------------------------


def test_settings_from_the_environment_win_over_the_file(pipeline: Write) -> None:
    overrides = environment_overrides(
        {
            "MSCAM_CLUSTER__N_CLUSTERS": "4",
            "MSCAM_OUTPUT__ROOT": "/some where/runs",
            "MSCAM_EVALUATE__ENABLED": "false",
            "MSCAM_DATA": "/not/ours",
            "MSCAM_LOCK": "x",
        }
    )
    settings = read_config(pipeline(""), overrides)
    assert settings.cluster.n_clusters == 4
    assert settings.output.root == "/some where/runs"
    assert settings.evaluate.enabled is False


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("MSCAM_CLUSTER__", "names no setting"),
        ("MSCAM___N_CLUSTERS", "names no setting"),
        ("MSCAM_CLUSTER__N_CLUTSERS", "Did you mean 'n_clusters'"),
        ("MSCAM_CLUSTR__N_CLUSTERS", r"no table \[clustr\]"),
    ],
)
def test_a_variable_that_means_nothing_is_named(pipeline: Write, name: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        read_config(pipeline(""), environment_overrides({name: "4"}))
    assert name in str(caught.value)


def test_ingest_of_a_grown_file_and_os_links(tmp_path: Path, tiny: Path) -> None:
    from mscam_dask.pipeline.heritage import link_tree

    store = ingest([tiny], tmp_path / "a.zarr").output
    assert isinstance(store, Path)
    link_tree(store, tmp_path / "b.zarr")
    names = sorted(str(file.relative_to(store)) for file in store.rglob("*") if file.is_file())
    assert all((store / name).samefile(tmp_path / "b.zarr" / name) for name in names)
