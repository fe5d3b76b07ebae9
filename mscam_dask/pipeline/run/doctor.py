"""Checks of a computer for runs, and of a finished run, each with a remedy."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mscam_dask.data.results import read_result
from mscam_dask.data.store.object_store import as_location
from mscam_dask.data.store.read import verify_store
from mscam_dask.errors import MscamError
from mscam_dask.monitor.messages import plural
from mscam_dask.monitor.run_record import DataRecord, blas_libraries, software_versions
from mscam_dask.pipeline.config.settings import ExecutionTable
from mscam_dask.pipeline.run.cluster import open_cluster, smallest_memory_bytes
from mscam_dask.pipeline.run.previous_runs import PreviousRun
from mscam_dask.pipeline.run.run_directory import RunDirectory, resolved
from mscam_dask.solvers.spectral_cut import canonical_labels

Level = Literal["ok", "warn", "fail"]

_GIB = 2.0**30
_MIN_BYTES = 2 * 2**30
_MIN_PYTHON = (3, 11)
_MODULES = ("numpy", "scipy", "sklearn", "dask", "distributed", "zarr", "xarray")
_EXTRAS = {
    "h5py": ("mat", "MATLAB v7.3 files"),
    "h5netcdf": ("netcdf", "NetCDF-4 files"),
    "bokeh": ("dashboard", "the Dask dashboard"),
}


@dataclass(frozen=True)
class Check:
    """Outcome of one check."""

    name: str
    level: Level
    """With "warn", runs work with limitations; with "fail" they do not."""
    found: str
    remedy: str = ""


def _python() -> Check:
    version = software_versions()["python"]
    if sys.version_info[:2] >= _MIN_PYTHON:
        return Check("Python", "ok", version)
    oldest = ".".join(map(str, _MIN_PYTHON))
    return Check("Python", "fail", version, f"Install Python {oldest} or later.")


def _packages() -> Check:
    broken = []
    for module in _MODULES:
        try:
            import_module(module)
        except ImportError as error:
            broken.append(f"{module} ({error})")
    versions = software_versions()
    found = ", ".join(
        f"{name} {version}"
        for name, version in versions.items()
        if name not in ("python", "platform")
    )
    if broken:
        return Check(
            "Packages", "fail", f"{found}; broken: {', '.join(broken)}", "pip install mscam-dask"
        )
    return Check("Packages", "ok", found)


def _cores() -> Check:
    from dask.system import CPU_COUNT

    return Check("Cores", "ok", f"{CPU_COUNT} (default number of worker processes)")


def _memory() -> Check:
    limit = smallest_memory_bytes()
    found = f"{limit / _GIB:.1f} GiB for this process and its workers"
    if limit < _MIN_BYTES:
        return Check(
            "Memory", "warn", found, "Small data only; use --workers 1, or a larger computer."
        )
    return Check("Memory", "ok", found)


def _blas() -> Check:
    import_module("scipy.linalg")
    libraries = blas_libraries()
    blas = [library for library in libraries if library["user_api"] == "blas"]
    if not blas:
        return Check(
            "BLAS",
            "warn",
            "none with a number of threads that can be set",
            "Set OMP_NUM_THREADS=1 (and VECLIB_MAXIMUM_THREADS=1 on macOS) before a run, or "
            "workers compete for cores.",
        )
    listing = sorted({f"{library['internal_api']} {library['version']}" for library in blas})
    threads = max(int(library["num_threads"]) for library in blas)
    return Check(
        "BLAS",
        "ok",
        f"{', '.join(listing)}, up to {threads} thread(s); a fit uses 1 in each task",
    )


def _temporary() -> Check:
    try:
        with tempfile.TemporaryFile() as stream:
            stream.write(b"\0" * 4096)
        return Check("Temporary files", "ok", tempfile.gettempdir())
    except OSError as error:
        return Check(
            "Temporary files",
            "fail",
            f"cannot be written: {error}",
            "Free space, or set TMPDIR to a directory that this user may write in.",
        )


def _disk() -> Check:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    found = f"{free / _GIB:.1f} GiB free in {here}"
    try:
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError:
        return Check(
            "Disk",
            "warn",
            f"{here} cannot be written",
            "Runs are written to ./runs by default: change the directory, or give run --output DIR.",
        )
    if free < _MIN_BYTES:
        return Check("Disk", "warn", found, "Free space for the results and a copy of the data.")
    return Check("Disk", "ok", found)


def _cluster() -> Check:
    try:
        with open_cluster(ExecutionTable(workers=1)) as cluster:
            assert cluster.client is not None
            answer = cluster.client.submit(sum, [1, 2, 3], pure=False).result(timeout=30)
            dashboard = cluster.dashboard or "no dashboard"
    except (MscamError, OSError, TimeoutError) as error:
        return Check(
            "Dask cluster",
            "fail",
            str(error),
            "Allow connections on 127.0.0.1 (firewall, proxy), or run with --in-process.",
        )
    if answer != 6:
        return Check("Dask cluster", "fail", f"1 + 2 + 3 returned {answer}", "Reinstall Dask.")
    return Check("Dask cluster", "ok", f"starts and answers on 127.0.0.1, dashboard {dashboard}")


def _extras() -> Check:
    missing = {module: extra for module, extra in _EXTRAS.items() if find_spec(module) is None}
    if not missing:
        return Check(
            "Extras", "ok", ", ".join(f"{extra} ({use})" for extra, use in _EXTRAS.values())
        )
    listing = ", ".join(f"{module}, for {use}" for module, (_, use) in missing.items())
    names = ",".join(extra for extra, _ in missing.values())
    return Check(
        "Extras", "warn", f"not installed: {listing}", f"pip install 'mscam-dask[{names}]'"
    )


CHECKS: tuple[tuple[str, Callable[[], Check]], ...] = (
    ("Python", _python),
    ("Packages", _packages),
    ("Cores", _cores),
    ("Memory", _memory),
    ("BLAS", _blas),
    ("Temporary files", _temporary),
    ("Disk", _disk),
    ("Extras", _extras),
    ("Dask cluster", _cluster),
)
"""Checks in order; each takes well under a second, except for the cluster."""


def check_run(path: str | Path) -> list[Check]:
    """Check a finished run: its record, its files, the invariants of its result, and its data."""
    directory = RunDirectory(resolved(path))
    record = directory.read_record()
    if record.state != "finished" or record.data is None or record.fit is None:
        remedy = f"Continue it with mscam-dask resume {directory.path}."
        return [Check("Record", "fail", f"the run has not finished: {record.state}", remedy)]
    rerun = "Restore the directory from a copy, or run the pipeline again with --overwrite."
    checks = [Check("Record", "ok", f"finished at {record.ended}, exit code {record.exit_code}")]
    problem = PreviousRun(directory, record).integrity_problem()
    if problem:
        return [*checks, Check("Results", "fail", problem, rerun)]
    checks.append(Check("Results", "ok", "labels.csv and result.zarr are as the run wrote them"))
    result = read_result(directory.result)
    broken = violations(
        canonical_labels(result.labels),
        result.consensus_graph,
        result.view_contributions,
        n_connected_components=result.n_connected_components,
        reached=record.fit.has_requested_components,
    )
    if tuple(np.unique(result.labels).tolist()) != record.fit.cluster_names:
        broken += ("The clusters of labels.csv are not those of run.json.",)
    clusters = plural(len(record.fit.cluster_names), "cluster")
    found = " ".join(broken) or f"{clusters}, as many as the graph's components"
    checks.append(Check("Invariants", "fail" if broken else "ok", found, rerun if broken else ""))
    checks.append(_run_data(directory, record.data))
    return checks


def _run_data(directory: RunDirectory, recorded: DataRecord) -> Check:
    place = as_location(recorded.store)
    store = directory.path / place if isinstance(place, Path) else place
    try:
        digest = verify_store(store).digest()
    except MscamError as error:
        return Check(
            "Data",
            "warn",
            str(error),
            "The labels stand without it; predict and resume may need it.",
        )
    if digest != recorded.digest:
        return Check(
            "Data", "warn", f"{store} has changed since the run", "Run the pipeline again."
        )
    return Check("Data", "ok", f"{store} is as it was clustered")


# Rounding of sums of weights: rows of A and view contributions.
_TOLERANCE = 1e-9


def violations(
    labels: NDArray[np.int64],
    consensus_graph: csr_array[Any],
    view_contributions: dict[str, float],
    *,
    n_connected_components: int,
    reached: bool = True,
) -> tuple[str, ...]:
    """Return the invariants that a result violates, as sentences; empty for a valid result."""
    return (
        *_of_labels(labels),
        *_of_graph(labels, consensus_graph, n_connected_components, reached=reached),
        *_of_contributions(view_contributions),
    )


def _of_labels(labels: NDArray[np.int64]) -> Iterator[str]:
    if labels.ndim != 1 or labels.dtype.kind != "i":
        yield f"Labels have shape {labels.shape} and dtype {labels.dtype}, not one integer per sample."
        return
    if not np.array_equal(labels, canonical_labels(labels)):
        yield "Labels are not numbered from 0 in the order of first appearance."


def _of_graph(
    labels: NDArray[np.int64],
    graph: csr_array[Any],
    n_connected_components: int,
    *,
    reached: bool,
) -> Iterator[str]:
    n = len(labels)
    if graph.shape != (n, n):
        yield f"The graph has shape {graph.shape} for {n} samples."
        return
    if not (np.isfinite(graph.data).all() and (graph.data >= 0).all()):
        yield "The graph has weights that are negative or not finite."
        return
    if graph.diagonal().any():
        yield "The graph has edges from a sample to itself."
    rows = np.asarray(graph.sum(axis=1)).ravel()
    count, components = connected_components(graph, directed=False)
    alone = np.bincount(components)[components] == 1
    wrong = np.flatnonzero(np.abs(rows - ~alone) > _TOLERANCE)
    if len(wrong):
        yield (
            f"Rows of the graph do not sum to one in {len(wrong)} of {n} samples, "
            f"sample {wrong[0]} first ({rows[wrong[0]]:.6g})."
        )
    if count != n_connected_components:
        yield f"The graph has {count} connected components; {n_connected_components} are recorded."
    if reached:
        pairs = len(np.unique(np.stack([labels, components]), axis=1).T)
        if not pairs == count == len(np.unique(labels)):
            yield f"The {count} connected components of the graph are not the {len(np.unique(labels))} clusters."


def _of_contributions(shares: dict[str, float]) -> Iterator[str]:
    values = np.array(list(shares.values()), dtype=np.float64)
    if not ((values >= 0).all() and abs(values.sum() - 1.0) <= _TOLERANCE):
        yield f"View contributions are not shares that sum to one, but to {values.sum():.6g}."
