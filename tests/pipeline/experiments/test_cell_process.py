"""Cells in processes of their own: results, failures, limits, and processes that die."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest

from mscam_dask.data.store_writer import write_store
from mscam_dask.errors import TemporaryFailure
from mscam_dask.metrics import clustering_accuracy
from mscam_dask.pipeline.experiments.cell_process import CellProcess
from mscam_dask.pipeline.experiments.cells import Cell, Limits, MixtureData, StoredData
from mscam_dask.pipeline.experiments.fitting import fit_cell
from mscam_dask.pipeline.experiments.stored import stored_as
from tests.synthetic import three_subspaces

NONE = Limits()


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    data = three_subspaces()
    return Cell(
        dataset="tiny",
        method="knn-sc",
        data=stored_as(data, write_store(data, tmp_path / "tiny.zarr")),
        n_clusters=3,
        seed=1,
        shuffled=True,
        parameters={},
    )


@pytest.fixture
def process() -> Iterator[CellProcess]:
    one = CellProcess()
    yield one
    one.close()


def changed(cell: Cell, **changes: object) -> Cell:
    return msgspec.structs.replace(cell, **changes)


def with_data(cell: Cell, **changes: object) -> Cell:
    assert isinstance(cell.data, StoredData)
    return changed(cell, data=msgspec.structs.replace(cell.data, **changes))


def test_a_key_is_of_everything_that_determines_the_result(cell: Cell) -> None:
    others = [
        changed(cell, method="mlan"),
        changed(cell, n_clusters=4),
        changed(cell, seed=2),
        changed(cell, shuffled=False),
        changed(cell, parameters={"n_neighbors": 5}),
        with_data(cell, digest="e"),
    ]
    assert len({one.key for one in (cell, *others)}) == 7
    moved = with_data(changed(cell, dataset="again"), path="elsewhere")
    assert moved.key == cell.key
    first = changed(cell, parameters={"a": 1, "b": 2})
    assert first.key == changed(cell, parameters={"b": 2, "a": 1}).key


def test_the_same_result_as_in_this_process(cell: Cell, process: CellProcess) -> None:
    there, here = process.run(cell, NONE), fit_cell(cell)
    assert there.outcome == "ok"
    assert there.scores == here.scores
    assert there.scores["accuracy"] == 1.0
    assert there.n_found == 3
    assert there.seconds is not None
    assert there.seconds > 0
    assert there.peak_memory_bytes is not None
    assert 0 < there.peak_memory_bytes < 2**30


def test_a_failure_is_a_result_and_the_next_cell_goes_on(cell: Cell, process: CellProcess) -> None:
    failed = process.run(changed(cell, n_clusters=61), NONE)
    assert failed.outcome == "failed"
    assert failed.reason.startswith("ConfigurationError: n_clusters=61")
    assert failed.scores == {}
    missing = process.run(with_data(cell, path="absent"), NONE)
    assert missing.outcome == "failed"
    assert "absent" in missing.reason
    assert process.run(cell, NONE).outcome == "ok"


def test_an_answer_may_be_longer_than_a_pipe_holds(cell: Cell, process: CellProcess) -> None:
    path = "x" * 200_000  # which the message names
    failed = process.run(with_data(cell, path=path), Limits(time_s=20))
    assert failed.outcome == "failed"
    assert path in failed.reason
    assert process.run(cell, NONE).outcome == "ok"


def large(cell: Cell) -> Cell:
    """A cell that takes many seconds and some hundred MiB."""
    data = MixtureData(
        corrupted=0.0, n_samples=4000, noise_variance=0.3, covariance_scale=1.2, digest="m"
    )
    return changed(cell, data=data, method="mlan", n_clusters=2, shuffled=False)


def test_a_cell_over_its_time_is_ended(cell: Cell, process: CellProcess) -> None:
    fit = process.run(large(cell), Limits(time_s=0.3))
    assert fit.outcome == "over time"
    assert "the limit is 0.3 s" in fit.reason
    assert process.run(cell, NONE).outcome == "ok"


def test_a_cell_over_its_memory_is_ended(cell: Cell, process: CellProcess) -> None:
    fit = process.run(large(cell), Limits(memory_bytes=100 * 2**20))
    assert fit.outcome == "over memory"
    assert "the limit is 100 MiB" in fit.reason
    assert fit.peak_memory_bytes is not None
    assert fit.peak_memory_bytes > 100 * 2**20
    assert process.run(cell, NONE).outcome == "ok"


def killed_soon(kind: str) -> threading.Thread:
    """Kill the cell at work, or the process that runs cells, once it is there."""

    def wait_and_kill() -> None:
        while True:
            servers = psutil.Process().children()
            cells = [cell for server in servers for cell in server.children()]
            found = cells if kind == "cell" else [s for s in servers if s.children()]
            if found:
                os.kill(found[0].pid, signal.SIGKILL)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=wait_and_kill, daemon=True)
    thread.start()
    return thread


@pytest.mark.faults
@pytest.mark.parametrize(("kind", "part"), [("cell", "SIGKILL"), ("server", "ended with code -9")])
def test_a_process_that_is_killed_is_a_cell_to_run_again(
    cell: Cell, process: CellProcess, kind: str, part: str
) -> None:
    thread = killed_soon(kind)
    fit = process.run(large(cell), NONE)
    thread.join()
    assert fit.outcome == "worker lost"
    assert part in fit.reason
    assert process.run(cell, NONE).outcome == "ok"


@pytest.mark.faults
def test_a_cell_goes_with_its_caller(cell: Cell, process: CellProcess) -> None:
    running = threading.Thread(target=process.run, args=(large(cell), NONE), daemon=True)
    running.start()
    found: list[psutil.Process] = []
    while not found:
        found = [one for server in psutil.Process().children() for one in server.children()]
        time.sleep(0.01)
    server = process._process
    assert server is not None
    assert server.stdin is not None
    server.stdin.close()  # what happens when the caller dies
    gone, alive = psutil.wait_procs(found, timeout=30)
    assert gone
    assert not alive
    running.join(timeout=30)
    assert not running.is_alive()


def test_data_that_were_replaced_are_no_result_of_those_before(cell: Cell) -> None:
    assert isinstance(cell.data, StoredData)
    write_store(three_subspaces(seed=1), cell.data.path, overwrite=True)
    with pytest.raises(TemporaryFailure, match=r"tiny\.zarr has been replaced .*Start the exp"):
        fit_cell(cell)


def test_the_seed_shuffles_all_views_and_labels_alike(cell: Cell) -> None:
    from mscam_dask.data.store import open_store
    from mscam_dask.pipeline.experiments.fitting import shuffled_data

    assert isinstance(cell.data, StoredData)
    data = open_store(cell.data.path)
    moved = shuffled_data(data, 5)
    assert moved.labels is not None
    assert data.labels is not None
    rows = [view.read(0, 60) for view in data.views]
    order = [
        int(np.flatnonzero((rows[0] == row).all(axis=1))[0]) for row in moved.views[0].read(0, 60)
    ]
    assert order != list(range(60))
    np.testing.assert_array_equal(moved.views[1].read(0, 60), rows[1][order])
    np.testing.assert_array_equal(moved.labels, data.labels[order])
    assert clustering_accuracy(moved.labels, data.labels[order]) == 1.0


def test_distances_have_rows_and_columns_shuffled_alike() -> None:
    from mscam_dask.data.multiview import MultiViewData
    from mscam_dask.data.sources import ArrayRows
    from mscam_dask.pipeline.experiments.fitting import shuffled_data

    points = np.arange(7.0)
    distances = np.abs(points[:, None] - points)
    data = MultiViewData(
        views=(ArrayRows(distances, "d", "distance"), ArrayRows(points[:, None], "x"))
    )
    moved = shuffled_data(data, 3)
    order = moved.views[1].read(0, 7).ravel()
    np.testing.assert_array_equal(moved.views[0].read(0, 7), np.abs(order[:, None] - order))
