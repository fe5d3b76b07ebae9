"""Power cuts in runs, `--overwrite`, retention and stores: the state before or after is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mscam_dask.data.ingest import append
from mscam_dask.data.store.filesystem import LocalFilesystem
from mscam_dask.data.store.read import verify_store
from mscam_dask.data.store.write import write_store
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import DataError, StoreCorruptError
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.run.load_run import load_run
from mscam_dask.pipeline.run.resume import run_or_resume
from mscam_dask.pipeline.run.run_directory import RunDirectory
from tests.faults.memory_disk import Loss, MemoryDisk
from tests.faults.traced_disk import Change, after_changes, on_disk, restore, tracing
from tests.synthetic import gaussian_views

pytestmark = pytest.mark.faults

LOSSES: tuple[tuple[Loss, int], ...] = (
    ("nothing", 0),
    ("contents", 0),
    ("everything", 0),
    ("some", 0),
    ("some", 1),
    ("some", 2),
)


@dataclass
class Traced:
    """Changes to a directory, and its files before them.

    Attributes
    ----------
    root
        The directory, which `cuts` fills again and again.
    before
    changes
    """

    root: Path
    before: MemoryDisk
    changes: list[Change]

    def cuts(self, *, most: int | None = None) -> Iterator[str]:
        """Fill the directory as a power cut leaves it after each change; yield which one it was.

        Parameters
        ----------
        most
            Number of cuts; those around renames come first.
        """
        ends = list(range(len(self.changes) + 1))
        cases = [(end, *loss) for end in ends for loss in LOSSES]
        if most is not None:
            names = [change[0] for change in self.changes]
            telling = [
                end
                for end in ends
                if {"rename", "exchange", "rmdir"} & set(names[max(0, end - 2) : end + 1])
            ]
            cases = [case for case in cases if case[0] in telling]
            cases = [cases[index] for index in np.linspace(0, len(cases) - 1, most).astype(int)]
        for end, loss, seed in cases:
            disk = after_changes(self.before, self.changes[:end])
            restore(disk.after_power_cut(loss, seed=10 * end + seed), self.root)
            last = self.changes[end - 1][:2] if end else "nothing"
            yield f"{loss} {seed} lost after change {end} of {ends[-1]}, {last}"


def traced(root: Path, change: Callable[[], object]) -> Traced:
    before = on_disk(root)
    with tracing(root) as changes:
        change()
    after = after_changes(before, changes)
    assert files_of(after) == files_of(on_disk(root)), "the trace is not whole"
    return Traced(root, before, changes)


def files_of(disk: MemoryDisk, path: Path = Path("/")) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.names(path):
        if disk.is_directory(path / name):
            found |= files_of(disk, path / name)
        else:
            found[str(path / name)] = disk.read(path / name)
    return found


@pytest.fixture(params=[True, False], ids=["swapped", "renamed"])
def can_exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(LocalFilesystem, "exchange", lambda *_: False)
    return bool(request.param)


# ---------------------------------------------------------------------------------------------
# Stores
# ---------------------------------------------------------------------------------------------


def counting(start: int, stop: int) -> MultiViewData:
    return MultiViewData((ArrayRows(np.arange(float(start), stop)[:, None], "v"),))


def numbers(store: Path) -> list[float] | None:
    """Values of a store, all of them compared with their checksums; None where there is none."""
    try:
        view = verify_store(store).views[0]
    except DataError:
        assert not store.exists(), "a store that is there is damaged"
        return None
    values: list[float] = view.read(0, view.shape[0]).ravel().tolist()
    return values


STORED: dict[str, tuple[Callable[[Path], object], list[float] | None, list[float]]] = {
    "written": (lambda store: write_store(counting(0, 3), store), None, [0, 1, 2]),
    "written over": (
        lambda store: write_store(counting(5, 7), store, overwrite=True),
        [0, 1, 2],
        [5, 6],
    ),
    "appended to": (lambda store: append(counting(3, 4), store), [0, 1, 2], [0, 1, 2, 3]),
}


def check_store(root: Path, how: str, most: int | None) -> int:
    change, before, after = STORED[how]
    root.mkdir()
    store = root / "data.zarr"
    if before is not None:
        write_store(counting(0, 3), store)
    trace = traced(root, lambda: change(store))
    n_cuts = 0
    for cut in trace.cuts(most=most):
        assert numbers(store) in (before, after), cut
        n_cuts += 1
    restore(after_changes(trace.before, trace.changes).after_power_cut("everything"), root)
    assert numbers(store) == after, "it returned before it was on the disk"
    return n_cuts


@pytest.mark.parametrize("how", STORED)
def test_a_store_is_the_old_one_or_the_new_one(
    how: str, can_exchange: bool, tmp_path: Path
) -> None:
    check_store(tmp_path / "d", how, 12)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", STORED)
def test_a_store_is_the_old_one_or_the_new_one_after_any_cut(
    how: str, can_exchange: bool, tmp_path: Path
) -> None:
    print(how, check_store(tmp_path / "d", how, None))  # noqa: T201


# ---------------------------------------------------------------------------------------------
# Runs
# ---------------------------------------------------------------------------------------------


def write_pipeline(folder: Path, more: str) -> Path:
    file = folder / "tiny.toml"
    file.write_text(
        "[data]\nsource = 'tiny.npz'\n"
        "[cluster]\nn_clusters = 3\nconstants.auto_settings = false\nmax_iter = 2\n"
        f"{more}\n[execution]\nin_process = true\nthreads = 1\n[report]\nenabled = false\n"
    )
    return file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data, the pipeline, and in "d" what is traced."""
    views, _ = gaussian_views(3, n_samples=30, spread=1.0, dims=(3, 4))
    np.savez(tmp_path / "tiny.npz", allow_pickle=False, a=views[0], b=views[1])
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(folder: Path, more: str = "", **options: object) -> NDArray[np.int64]:
    outcome = run_or_resume(read_config(write_pipeline(folder, more)), **options)  # type: ignore[arg-type]
    return labels(outcome.directory.path)


def labels(path: Path) -> NDArray[np.int64]:
    """Labels of a whole run: load_run compares its files with their checksums."""
    found: NDArray[np.int64] = load_run(path).labels_
    text = np.loadtxt(path / "labels.csv", delimiter=",", skiprows=1, usecols=1, dtype=np.int64)
    assert np.array_equal(text, found)
    return found


def found_labels(path: Path) -> NDArray[np.int64] | None:
    """Labels of the run in a directory; None without a finished run.

    The directory is locked first, as by every command that writes, which repairs a kill between
    two renames.
    """
    try:
        with RunDirectory.lock(path):
            pass
        return labels(path)
    except StoreCorruptError:
        raise
    except DataError:  # nothing is damaged
        return None


def is_one_of(found: NDArray[np.int64] | None, allowed: Sequence[NDArray[np.int64] | None]) -> bool:
    return any(
        found is one or (found is not None and one is not None and np.array_equal(found, one))
        for one in allowed
    )


def check_overwrite(folder: Path, *, most: int | None) -> int:
    path = folder / "d" / "out"
    first = run(folder, output=path)
    more = "alpha = 0.01\nscale = 'none'"
    trace = traced(folder / "d", lambda: run(folder, more, output=path, overwrite=True))
    second = labels(path)
    assert not np.array_equal(first, second), "a test that cannot tell the two"
    n_cuts = 0
    for cut in trace.cuts(most=most):
        assert is_one_of(found_labels(path), [first, second]), cut
        if n_cuts % 25 == 0:  # and the same command again ends in the new run
            assert np.array_equal(run(folder, more, output=path, overwrite=True), second), cut
            assert np.array_equal(labels(path), second), cut
        n_cuts += 1
    restore(after_changes(trace.before, trace.changes).after_power_cut("everything"), trace.root)
    assert np.array_equal(labels(path), second), "it returned before it was on the disk"
    return n_cuts


@pytest.mark.thorough
def test_a_run_that_replaces_another(folder: Path) -> None:
    check_overwrite(folder, most=8)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_run_that_replaces_another_after_any_cut(folder: Path, can_exchange: bool) -> None:
    print(check_overwrite(folder, most=None))  # noqa: T201


def check_first_run(folder: Path, *, most: int | None) -> int:
    path = folder / "d" / "out"
    trace = traced(folder / "d", lambda: run(folder, output=path))
    expected = labels(path)
    n_cuts = 0
    for cut in trace.cuts(most=most):
        if path.exists():
            assert is_one_of(found_labels(path), [None, expected]), cut
        if n_cuts % 25 == 0:
            assert np.array_equal(run(folder, output=path), expected), cut
        n_cuts += 1
    restore(after_changes(trace.before, trace.changes).after_power_cut("everything"), trace.root)
    assert np.array_equal(labels(path), expected), "it returned before it was on the disk"
    return n_cuts


def test_a_first_run(folder: Path) -> None:
    check_first_run(folder, most=8)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_first_run_after_any_cut(folder: Path) -> None:
    print(check_first_run(folder, most=None))  # noqa: T201


def check_retention(folder: Path, *, most: int | None) -> int:
    root = folder / "d" / "runs"
    output = f"[output]\nroot = '{root}'\nkeep = 1\n[incremental]\nenabled = true\n"

    def night(number: int) -> NDArray[np.int64]:
        views, _ = gaussian_views(3 + number, n_samples=30, spread=1.0, dims=(3, 4))
        np.savez(folder / "tiny.npz", allow_pickle=False, a=views[0], b=views[1])
        return run(folder, output)

    first = night(0)
    (old,) = root.glob("tiny-*")
    trace = traced(folder / "d", lambda: night(1))
    (new,) = root.glob("tiny-*")
    assert new != old
    second = labels(new)
    n_cuts = 0
    for cut in trace.cuts(most=most):
        found = [found_labels(path) if path.exists() else None for path in (old, new)]
        assert is_one_of(found[0], [first, None]), cut
        assert is_one_of(found[1], [second, None]), cut
        assert found[0] is not None or found[1] is not None, f"no run is left: {cut}"
        if n_cuts % 25 == 0:
            assert np.array_equal(night(1), second), cut
        n_cuts += 1
    return n_cuts


@pytest.mark.thorough
def test_retention(folder: Path) -> None:
    check_retention(folder, most=8)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_retention_after_any_cut(folder: Path) -> None:
    print(check_retention(folder, most=None))  # noqa: T201
