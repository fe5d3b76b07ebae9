"""Many fits of the same data that differ in α, λ and the like, on one foundation.

What does not depend on them (the factored views, the neutral graphs of the judge) is computed
once, as tasks; each fit is then one task that walks its path serially from these results. So a
grid of any size reads and factors every view once, and its fits run side by side.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.as_multi_view import MultiViewData
from mscam_dask.engine.executors.base import Executor, Handle
from mscam_dask.engine.executors.local import SerialExecutor
from mscam_dask.engine.fit import run_fit
from mscam_dask.engine.precompute import precompute_views
from mscam_dask.errors import ConfigurationError
from mscam_dask.linalg.eigensolver import bottom_eigenpairs
from mscam_dask.linalg.laplacian import laplacian
from mscam_dask.linalg.modularity import modularity
from mscam_dask.solvers.reference_graphs import ReferenceGraphs
from mscam_dask.solvers.spectral_cut import sampled_rows
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import Solution

__all__ = ["SweepFit", "sweep_fits"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFit:
    """What is kept of one fit of a sweep.

    Attributes
    ----------
    parameters : Parameters
    labels : (n,) int64
    status : str
        Name of a `Status`.
    n_connected_components : int
        Of the consensus graph.
    cross_view_information : float
        Label-free score of the partition, in nats: `auto_settings=True` selects by it.
    eigengap : float
        λ_{c+1} − λ_c of the consensus graph's Laplacian; NaN when there are only c samples.
    modularity : float
        Of the partition, on the neutral graphs: the mean over those of a view, and over views.
    seconds : float
        Of the path alone, without the foundation.
    """

    parameters: Parameters
    labels: NDArray[np.int64]
    status: str
    n_connected_components: int
    cross_view_information: float
    eigengap: float
    modularity: float
    seconds: float


def sweep_fits(
    data: MultiViewData, settings: Sequence[Parameters], executor: Executor
) -> Iterator[SweepFit]:
    """Fit `data` with each of the settings, in their order.

    Parameters
    ----------
    data : MultiViewData
        Validated views.
    settings : sequence of Parameters
        Of one scaling.
    executor : Executor
        Entered here, and left when the iterator is done or closed.

    Yields
    ------
    SweepFit
        The same as of a fit by itself, bit for bit.

    Raises
    ------
    ConfigurationError
        When the settings have several scalings.
    ClusterError
        When the executor cannot carry the work.
    DataError
        When a view turns out to be unusable.
    """
    scales = {parameters.scale for parameters in settings}
    if len(scales) > 1:
        raise ConfigurationError(
            f"a sweep has one scaling, since views are factored once; got {sorted(scales)}."
        )
    if not settings:
        return
    with executor:
        recording = _Recording(executor)
        scalings = [settings[0].scales(len(data.views))]
        exact = settings[0].exact_samples
        precomputed = precompute_views(data, scalings, recording, exact_samples=exact)
        precomputed.reference_graphs.handles(recording, precomputed.names)
        keys, handles = list(recording.handles), list(recording.handles.values())
        fits = [
            executor.submit(_fit, data, parameters, keys, handles, key=f"sweep_fit/{index}")
            for index, parameters in enumerate(settings)
        ]
        for fit in fits:
            (result,) = executor.gather([fit])
            executor.release([fit])
            yield result
        executor.release(handles)


class _Recording:
    """An executor that remembers what was submitted to it, and releases none of it.

    Parameters
    ----------
    executor : Executor
        Entered by the caller; does the work.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.handles: dict[str, Handle] = {}

    @property
    def description(self) -> str:
        return self._executor.description

    @property
    def n_workers(self) -> int:
        return self._executor.n_workers

    @property
    def memory_limit_bytes(self) -> int | None:
        return self._executor.memory_limit_bytes

    @property
    def shares_memory(self) -> bool:
        return self._executor.shares_memory

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        handle = self._executor.submit(function, *args, key=key)
        self.handles[key] = handle
        return handle

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        return self._executor.gather(handles)

    def release(self, handles: Sequence[Handle]) -> None:
        """Nothing: the fits need them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return


class _Knowing(SerialExecutor):
    """A serial executor that has the results of some tasks already."""

    def __init__(self, known: dict[str, Any]) -> None:
        super().__init__()
        self._known = known

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        if key in self._known:
            return super().submit(_same, self._known[key], key=key)
        return super().submit(function, *args, key=key)


def _same(value: Any) -> Any:
    return value


def _fit(
    data: MultiViewData, parameters: Parameters, keys: list[str], results: list[Any]
) -> SweepFit:
    """The task of one fit: its foundation is there, the rest is computed here."""
    started = time.perf_counter()
    known = dict(zip(keys, results, strict=True))
    solution = run_fit(data, parameters, _Knowing(known))
    reference_graphs = [value for value in results if isinstance(value, ReferenceGraphs)]
    return SweepFit(
        parameters=parameters,
        labels=solution.labels,
        status=solution.status.name,
        n_connected_components=solution.n_connected_components,
        cross_view_information=solution.score,
        eigengap=_eigengap(solution, parameters),
        modularity=_mean_modularity(reference_graphs, solution.labels),
        seconds=time.perf_counter() - started,
    )


def _eigengap(solution: Solution, parameters: Parameters) -> float:
    c, n = parameters.n_clusters, len(solution.labels)
    if c >= n:
        return float("nan")
    spectrum = bottom_eigenpairs(
        laplacian(solution.consensus_graph),
        c + 1,
        relative_tolerance=1e-6,
        rng=np.random.default_rng(parameters.seed),
    )
    return float(spectrum.values[c] - spectrum.values[c - 1])


def _mean_modularity(
    reference_graphs: Sequence[ReferenceGraphs], labels: NDArray[np.int64]
) -> float:
    n_validation_samples = reference_graphs[0].graphs[0].shape[0]
    if n_validation_samples < len(labels):  # large data are judged on a sample
        labels = labels[sampled_rows(len(labels), n_validation_samples)]
    by_view = [
        float(np.mean([modularity(graph, labels) for graph in view.graphs]))
        for view in reference_graphs
    ]
    return float(np.mean(by_view))
