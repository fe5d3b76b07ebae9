"""Checks of a computer for runs, and of a finished run, each with a remedy."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from dask.system import CPU_COUNT
from scipy.sparse.csgraph import connected_components

from mscam_dask.data.results import read_result
from mscam_dask.data.store.dataset import verify_store
from mscam_dask.errors import MscamError
from mscam_dask.monitor.messages import plural
from mscam_dask.monitor.run_record import blas_libraries, software_versions
from mscam_dask.pipeline import cluster
from mscam_dask.pipeline.settings import ExecutionTable
from mscam_dask.pipeline.stored_run import StoredRun
from mscam_dask.types.result import Solution

Level = Literal["ok", "warn", "fail"]

_GIB = 2.0**30
_MIN_BYTES = 2 * 2**30
_EXTRAS = {
    "h5py": ("mat", "MATLAB v7.3 files"),
    "h5netcdf": ("netcdf", "NetCDF-4 files"),
    "bokeh": ("dashboard", "the Dask dashboard"),
}


class Check(NamedTuple):
    """Outcome of a check: with "warn", runs work with limitations; with "fail" they do not."""

    level: Level
    found: str
    remedy: str = ""


def _packages() -> Check:
    versions = {**software_versions()}
    del versions["python"], versions["platform"]
    return Check("ok", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _memory() -> Check:
    limit = cluster.smallest_memory_bytes()
    level: Level = "warn" if limit < _MIN_BYTES else "ok"
    found = f"{limit / _GIB:.1f} GiB for this process and its workers"
    return Check(level, found, "Small data only; use --workers 1, or a larger computer.")


def _blas() -> Check:
    import_module("scipy.linalg")
    blas = [library for library in blas_libraries() if library["user_api"] == "blas"]
    if not blas:
        return Check(
            "warn",
            "none with a number of threads that can be set",
            "Set OMP_NUM_THREADS=1 (and VECLIB_MAXIMUM_THREADS=1 on macOS) before a run, or "
            "workers compete for cores.",
        )
    listing = sorted({f"{library['internal_api']} {library['version']}" for library in blas})
    threads = max(int(library["num_threads"]) for library in blas)
    return Check(
        "ok", f"{', '.join(listing)}, up to {threads} thread(s); a fit uses 1 in each task"
    )


def _temporary() -> Check:
    try:
        with tempfile.TemporaryFile() as stream:
            stream.write(b"\0" * 4096)
        return Check("ok", tempfile.gettempdir())
    except OSError as error:
        remedy = "Free space, or set TMPDIR to a directory that this user may write in."
        return Check("fail", f"cannot be written: {error}", remedy)


def _disk() -> Check:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    try:
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError:
        return Check(
            "warn",
            f"{here} cannot be written",
            "Runs are written to ./runs by default: change the directory, or give run --output DIR.",
        )
    level: Level = "warn" if free < _MIN_BYTES else "ok"
    found = f"{free / _GIB:.1f} GiB free in {here}"
    return Check(level, found, "Free space for the results and a copy of the data.")


def _cluster() -> Check:
    try:
        with cluster.open_cluster(ExecutionTable(workers=1)) as opened:
            cluster.check_workers(opened, [Path.cwd()])
            assert opened.client is not None
            page, _ = cluster.page_of(opened.client)
    except (MscamError, OSError, TimeoutError) as error:
        remedy = "Allow connections on 127.0.0.1 (firewall, proxy), or run with --in-process."
        return Check("fail", str(error), remedy)
    return Check("ok", f"starts and answers on 127.0.0.1, {page}")


def _extras() -> Check:
    missing = {module: extra for module, extra in _EXTRAS.items() if find_spec(module) is None}
    if not missing:
        return Check("ok", ", ".join(f"{extra} ({use})" for extra, use in _EXTRAS.values()))
    listing = ", ".join(f"{module}, for {use}" for module, (_, use) in missing.items())
    names = ",".join(extra for extra, _ in missing.values())
    return Check("warn", f"not installed: {listing}", f"pip install 'mscam-dask[{names}]'")


CHECKS: Mapping[str, Callable[[], Check]] = {
    "Python": lambda: Check("ok", software_versions()["python"]),
    "Packages": _packages,
    "Cores": lambda: Check("ok", f"{CPU_COUNT} (default number of worker processes)"),
    "Memory": _memory,
    "BLAS": _blas,
    "Temporary files": _temporary,
    "Disk": _disk,
    "Extras": _extras,
    "Dask cluster": _cluster,
}
"""Checks of this computer, in order; each takes well under a second, except for the cluster."""


def check_run(path: str | Path) -> Iterator[tuple[str, Check]]:
    """Check a finished run: its record, its files, the invariants of its result, and its data."""
    run = StoredRun.read(path)
    if not run.has_results:
        yield "Record", Check("fail", f"the run has not finished: {run.state}", run.to_finish)
        return
    yield "Record", Check("ok", f"finished at {run.record.ended}, exit code {run.record.exit_code}")
    problem = run.integrity_problem()
    if problem:
        yield "Results", Check("fail", problem, run.to_repair)
        return
    yield "Results", Check("ok", "labels.csv and result.zarr are as the run wrote them")
    result = read_result(run.directory.result)
    broken = violations(result)
    if tuple(np.unique(result.labels).tolist()) != run.fit.cluster_names:
        broken += ("The clusters of labels.csv are not those of run.json.",)
    clusters = plural(len(run.fit.cluster_names), "cluster")
    found = " ".join(broken) or f"{clusters}, as many as the graph's components"
    rerun = "Restore the directory from a copy, or run the pipeline again with --overwrite."
    yield "Invariants", Check("fail" if broken else "ok", found, rerun)
    yield "Data", _data(run)


def _data(run: StoredRun) -> Check:
    try:
        digest = verify_store(run.store).digest()
    except MscamError as error:
        remedy = "The labels stand without it; predict and resume may need it."
        return Check("warn", str(error), remedy)
    if digest == run.data.digest:
        return Check("ok", f"{run.store} is as it was clustered")
    return Check("warn", f"{run.store} has changed since the run", "Run the pipeline again.")


# Rounding of sums of weights: rows of A and view contributions.
_TOLERANCE = 1e-9


def violations(result: Solution) -> tuple[str, ...]:
    """Return the invariants that a result violates, as sentences; empty for a valid result."""
    labels, graph, found = result.labels, result.consensus_graph, []
    shares = np.array(list(result.view_contributions.values()), dtype=np.float64)
    if not ((shares >= 0).all() and abs(shares.sum() - 1.0) <= _TOLERANCE):
        found.append(
            f"View contributions are not shares that sum to one, but to {shares.sum():.6g}."
        )
    n = len(labels)
    if graph.shape != (n, n):
        return *found, f"The graph has shape {graph.shape} for {n} samples."
    if not (np.isfinite(graph.data).all() and (graph.data >= 0).all()):
        return *found, "The graph has weights that are negative or not finite."
    if graph.diagonal().any():
        found.append("The graph has edges from a sample to itself.")
    rows = np.asarray(graph @ np.ones(n))
    count, components = connected_components(graph, directed=False)
    alone = np.bincount(components)[components] == 1
    wrong = np.flatnonzero(np.abs(rows - ~alone) > _TOLERANCE)
    if len(wrong):
        found.append(
            f"Rows of the graph do not sum to one in {len(wrong)} of {n} samples, "
            f"sample {wrong[0]} first ({rows[wrong[0]]:.6g})."
        )
    recorded, n_clusters = result.n_connected_components, len(np.unique(labels))
    if count != recorded:
        found.append(f"The graph has {count} connected components; {recorded} are recorded.")
    pairs = len(np.unique(np.stack([labels, components]), axis=1).T)
    if not pairs == count == n_clusters:
        found.append(
            f"The {count} connected components of the graph are not the {n_clusters} clusters."
        )
    return tuple(found)
