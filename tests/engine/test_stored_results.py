"""Results and checkpoints of large data, written block by block: the same bytes, and little for the driver to hold."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from mscam_dask.data import results
from mscam_dask.data.results import StoredArrays, read_result, write_result
from mscam_dask.data.store import arrays
from mscam_dask.data.store.atomic_replace import new_partial
from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.engine import blocks
from mscam_dask.engine.executors.base import Executor, SerialExecutor
from mscam_dask.engine.executors.dask import DaskExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.errors import StoreCorruptError
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import ArraysInMemory, Solution
from mscam_dask.types.rules import SIZES
from tests.clusters import local_client
from tests.messages import raises
from tests.synthetic import gaussian_views

VIEWS, _ = gaussian_views(2, n_samples=900, n_clusters=4, spread=0.9, dims=(6, 20))


@pytest.fixture(autouse=True)
def small_chunks(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a tenth of a graph, blocks exchanged in groups of three, and results of large data from 400 samples on."""
    monkeypatch.setattr(results, "SIZES", dataclasses.replace(SIZES, exact_samples=400))
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 5600)
    monkeypatch.setattr(blocks, "_MAX_PIECES", 3)


def fit(executor: Executor, directory: Path | None, **settings: Any) -> Solution:
    parameters = Parameters(**{"n_clusters": 4, "exact_samples": 400, "max_iter": 1, **settings})
    return run_fit(as_multi_view(VIEWS), parameters, executor, results_directory=directory)


def content(root: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()
    }


@pytest.mark.parametrize("settings", [{}, {"model": "mscan"}, {"n_clusters": 1}], ids=str)
def test_the_store_has_the_bytes_of_a_result_in_memory(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    by_blocks = tmp_path / "blocks" / "result.zarr"
    by_blocks.parent.mkdir()
    solution = fit(SerialExecutor(), new_partial(by_blocks), **settings)
    assert isinstance(solution.arrays, StoredArrays)
    in_memory = dataclasses.replace(solution, arrays=solution.arrays.loaded())
    write_result(solution, by_blocks)
    whole = write_result(in_memory, tmp_path / "whole" / "result.zarr")
    assert content(by_blocks) == content(whole)
    assert len(list(by_blocks.glob("consensus_graph/data/c/*"))) > 3
    assert [item.name for item in by_blocks.parent.iterdir()] == ["result.zarr"]


def same_arrays(solution: Solution, expected: Solution) -> None:
    assert_array_equal(solution.labels, expected.labels)
    for key in ("consensus_graph", "learned_graph"):
        graph, other = getattr(solution, key), getattr(expected, key)
        for part in ("data", "indices", "indptr"):
            assert_array_equal(getattr(graph, part), getattr(other, part))
    for key in ("view_embeddings", "view_coordinates"):
        found, wanted = getattr(solution, key), getattr(expected, key)
        assert list(found) == list(wanted) == ["view_0", "view_1"]
        for name, values in found.items():
            assert values.dtype == wanted[name].dtype
            assert_array_equal(values, wanted[name])


@pytest.mark.thorough
def test_arrays_are_those_of_a_fit_in_memory(tmp_path: Path) -> None:
    expected = fit(SerialExecutor(), None)
    assert isinstance(expected.arrays, ArraysInMemory)
    assert expected.learned_graph is not expected.consensus_graph
    same_arrays(fit(SerialExecutor(), tmp_path / "serial"), expected)
    with local_client(2) as client:
        same_arrays(fit(DaskExecutor(client), tmp_path / "workers"), expected)


def test_damage_of_a_large_result_is_found_before_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "result.zarr"
    write_result(fit(SerialExecutor(), new_partial(path)), path)
    for key in ("consensus_graph/indices", "learned_graph/data", "view_coordinates/1"):
        chunk = max(path.glob(f"{key}/c/*"))
        chunk = max(chunk.iterdir()) if chunk.is_dir() else chunk
        whole = chunk.read_bytes()
        chunk.write_bytes(whole[:-1])
        with raises(StoreCorruptError, chunk):
            read_result(path)
        chunk.write_bytes(whole)
    assert np.isfinite(read_result(path).score)


@pytest.mark.thorough
def test_results_on_the_disks_of_workers_have_the_same_bits(tmp_path: Path) -> None:
    expected = fit(SerialExecutor(), None)
    with (
        dask.config.set({"distributed.worker.memory.target": 1e-6}),
        local_client(2, memory_limit="2GiB", local_directory=str(tmp_path)) as client,
        DaskExecutor(client) as executor,
    ):
        assert executor.spill_threshold_bytes == int(1e-6 * 2**31)
        solution = fit(executor, None)
        totals = client.run(lambda dask_worker: dict(dask_worker.data.cumulative_metrics))
    same_arrays(solution, expected)
    assert all(total["disk-write", "count"] > 100 for total in totals.values())
    assert all(total["disk-read", "count"] > 100 for total in totals.values())
