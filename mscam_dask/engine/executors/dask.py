"""The executor on a Dask cluster; the only module of the engine that imports distributed.

Tasks are submitted with explicit keys and `pure=False`, results stay on the workers until they
are released, and nothing is scattered: what a lost worker held is computed again.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dask.base import annotate
from distributed import KilledWorker, wait
from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError
from distributed.comm.core import CommClosedError

from mscam_dask.engine.executors._aligned import aligned
from mscam_dask.engine.executors._dask_config import FIT_CONFIG
from mscam_dask.engine.executors._malloc import give_freed_memory_back, keep_freed_memory
from mscam_dask.engine.executors._sizeof import make_measurable
from mscam_dask.engine.executors._spans import Spans, phase_of
from mscam_dask.engine.executors._threadpools import PinnedBlas
from mscam_dask.engine.executors._watchdog import POLL_S, WorkerWatchdog
from mscam_dask.engine.executors.base import Handle
from mscam_dask.errors import ClusterError, NoWorkersError, SchedulerLostError, WorkerLostError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["DaskExecutor"]

_GIB = 2.0**30

# An exception may be that of a disk or a network; ours are the same when tried again.
_RETRIES = 2

# Nothing waits for these before the first partition is judged: they run where a worker would
# stand idle, beside the spectrum of the first graph above all, which is one task.
_IN_THE_GAPS = frozenset({"reference_graphs"})

# Alike tasks that want the same large arguments. The scheduler would leave them to the worker that
# has these already, also where others then stand idle: they are dealt out, and may still be moved.
_DEALT_OUT = frozenset({"candidate_neighbors", "ivf_neighbors", "projected_distances", "admm_view"})


class DaskExecutor:
    """Runs tasks on the workers of a `distributed.Client`.

    Parameters
    ----------
    client : distributed.Client
        Connected; neither opened nor closed here.
    workers_timeout_s : float
        How long to wait for the first worker.
    run_id : str, optional
        Part of every key: a digit and eight characters of any kind but "-". By default random.
    dashboard : str, optional
        Address where the tasks can be watched, for `description`.

    Raises
    ------
    ClusterError
        When the client is not connected.

    Notes
    -----
    Within one process (`LocalCluster(processes=False)`) BLAS is pinned to one thread for the
    length of the fit, in worker processes for good.
    """

    def __init__(
        self,
        client: Client,
        *,
        workers_timeout_s: float = 60.0,
        run_id: str | None = None,
        dashboard: str | None = None,
    ) -> None:
        self._client = client
        self._dashboard = dashboard
        self._workers_timeout_s = workers_timeout_s
        # a leading digit keeps it out of key prefixes
        self._run = run_id or f"0{uuid.uuid4().hex[:8]}"
        if client.status != "running":
            raise ClusterError(
                f"the Dask client is {client.status}; allowed is one that is connected. Make a new "
                "one, distributed.Client(address), or leave client out for threads of this process"
            )
        self._address = client.scheduler_info(n_workers=0)["address"]
        self._keys: set[tuple[str, str]] = set()
        self._dealt: tuple[str, Iterator[str]] = ("", iter(()))
        self._spans = Spans(self._run)
        self._stack = contextlib.ExitStack()
        self._handles: weakref.WeakValueDictionary[tuple[str, str], Handle] = (
            weakref.WeakValueDictionary()
        )

    @property
    def description(self) -> str:
        """See `Executor.description`."""
        watched = "" if self._dashboard is None else f", dashboard {self._dashboard}"
        return f"on {self.n_workers} Dask worker threads{watched}"

    @property
    def n_workers(self) -> int:
        """See `Executor.n_workers`."""
        return int(sum(worker["nthreads"] for worker in self._workers()))

    @property
    def memory_limit_bytes(self) -> int | None:
        """See `Executor.memory_limit_bytes`."""
        limits = [
            worker["memory_limit"] // worker["nthreads"]
            for worker in self._workers()
            if worker["memory_limit"]
        ]
        return min(limits) if limits else None

    @property
    def shares_memory(self) -> bool:
        """See `Executor.shares_memory`: only of workers that are threads of this process."""
        return str(self._address).startswith("inproc:")

    def _workers(self) -> list[dict[str, Any]]:
        return list(self._by_address().values())

    def _by_address(self) -> dict[str, dict[str, Any]]:
        """What the scheduler says of each worker, by address."""
        with _translated(self._client):
            return dict(self._client.scheduler_info(n_workers=-1)["workers"])

    def __enter__(self) -> Self:
        try:
            with _translated(self._client):
                self._client.wait_for_workers(1, timeout=self._workers_timeout_s)
        except TimeoutError as error:
            raise NoWorkersError(
                f"no Dask worker joined {self._address} within "
                f"{self._workers_timeout_s:g} s; start workers, or connect to a scheduler that "
                "has some"
            ) from error
        self._stack.enter_context(FIT_CONFIG)
        self._stack.enter_context(PinnedBlas())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # an exception that somebody keeps holds handles, and these what is on the workers
        if self._client.status == "running":
            self.release(list(self._handles.values()))
        self._stack.close()

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        """See `Executor.submit`.

        The stage becomes the key's prefix on the dashboard; tasks of one stage in one outer
        iteration are a group, and those of an iteration a span.
        """
        stage, _, name = key.partition("/")
        first, _, rest = name.partition("/")
        group = f"{stage}-{self._run}"
        phase = phase_of(stage, first)
        if phase is not None:
            group, name = f"{group}-{first}", rest
        unique = self._unique(group, name)
        place = self._next_place(group) if stage in _DEALT_OUT else None
        with _translated(self._client), annotate(span=self._spans.at(phase)):
            handle = self._client.submit(
                _run_pinned,
                function,
                *args,
                key=unique,
                pure=False,
                retries=_RETRIES,
                workers=None if place is None else [place],
                allow_other_workers=place is not None,
                priority=-1 if stage in _IN_THE_GAPS else 0,
            )
        self._handles[unique] = handle
        return handle

    def _next_place(self, group: str) -> str | None:
        """A worker for the next task of a group: each in turn, as often as it has threads."""
        dealt, places = self._dealt
        if dealt != group:
            workers = self._by_address()
            places = itertools.cycle(
                [address for address, one in workers.items() for _ in range(one["nthreads"])]
            )
            self._dealt = (group, places)
        return next(places, None)

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """See `Executor.gather`.

        Raises
        ------
        WorkerLostError
            When workers keep dying on one task.
        NoWorkersError
            When all workers are gone and none comes back in time.
        SchedulerLostError
            When the scheduler cannot be reached any more.
        """
        with _translated(self._client):
            self._wait(list(handles))
            try:
                results: list[Any] = self._client.gather(list(handles))
            except KilledWorker as error:
                raise self._worker_lost(error) from error
        return results

    def _wait(self, handles: list[Handle]) -> None:
        """Until all are done, as long as somebody is there to do them."""
        watchdog = self.watchdog()
        while handles:
            with contextlib.suppress(TimeoutError), self._client.as_current():
                wait(handles, timeout=POLL_S)
                return
            watchdog.check()

    def watchdog(self) -> WorkerWatchdog:
        """Return what says, while one waits, whether there are workers left."""
        return WorkerWatchdog(lambda: self.n_workers, str(self._address), self._workers_timeout_s)

    def _unique(self, group: str, name: str) -> tuple[str, str]:
        """The key, with a number where it was given before: names of views may look like paths.

        The number comes before the name, whose end tells the dashboard the view.
        """
        key, count = (group, name), 1
        while key in self._keys:
            count += 1
            key = (group, f"#{count}/{name}")
        self._keys.add(key)
        return key

    def _worker_lost(self, error: KilledWorker) -> WorkerLostError:
        group, name = error.task if isinstance(error.task, tuple) else (error.task, "")
        stage, _, first = str(group).partition(f"-{self._run}")
        task = f"{stage} {'/'.join(part for part in (first.strip('-'), str(name)) if part)}"
        limit = self.memory_limit_bytes
        memory = f"the smallest worker's limit is {limit / _GIB:.1f} GiB" if limit else "no limit"
        return WorkerLostError(
            f"task {task!r} was given up after {error.allowed_failures + 1} workers died while "
            f"running it, the last one {error.last_worker.address}. Most often they ran out of "
            f"memory ({memory}): give workers more memory or fewer threads, and see their logs"
        )

    def release(self, handles: Sequence[Handle]) -> None:
        """See `Executor.release`."""
        for handle in handles:
            handle.release()


@contextlib.contextmanager
def _translated(client: Client) -> Iterator[None]:
    """Turn what Dask raises once the scheduler is gone into one error.

    A client that has lost its scheduler keeps what is submitted, and would wait for a new one.
    """
    if client.status != "running":
        raise _scheduler_lost()
    try:
        yield
    except (
        FutureCancelledError,
        FuturesCancelledError,
        CommClosedError,
        ClosedClientError,
    ) as error:
        raise _scheduler_lost() from error


def _scheduler_lost() -> SchedulerLostError:
    return SchedulerLostError(
        "the connection to the Dask scheduler was lost, or its cluster was restarted; what was "
        "checkpointed is intact. Repeat the run when the cluster is there again"
    )


def _run_pinned(function: Callable[..., Any], *args: Any) -> Any:
    PinnedBlas.pin_permanently()
    keep_freed_memory()
    result = function(*(aligned(argument) for argument in args))
    give_freed_memory_back()
    make_measurable(result)
    return result
