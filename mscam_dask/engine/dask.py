"""The executor on a Dask cluster; the only module of the engine that imports distributed.

Tasks are submitted with explicit keys and `pure=False`, results stay on the workers until they
are released, and nothing is scattered: what a lost worker held is computed again.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import dask.config
from distributed import KilledWorker, span, wait
from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError
from distributed.comm.core import CommClosedError

from mscam_dask.engine.executor import Handle
from mscam_dask.engine.local import PinnedBlas
from mscam_dask.errors import NoWorkersError, SchedulerLostError, WorkerLostError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["DaskExecutor"]

_GIB = 2.0**30

# An exception may be that of a disk or a network; ours are the same when tried again.
_RETRIES = 2

# How often a driver that waits looks whether there are workers left.
_POLL_S = 2.0

# Views held in the driver's memory travel inside their tasks; the memory plan bounds them.
_CONFIG = {"distributed.admin.large-graph-warning-threshold": "4GiB"}


class DaskExecutor:
    """Runs tasks on the workers of a `distributed.Client`.

    Parameters
    ----------
    client : distributed.Client
        Connected; neither opened nor closed here.
    workers_timeout_s : float
        How long to wait for the first worker.

    Notes
    -----
    Within one process (`LocalCluster(processes=False)`) BLAS is pinned to one thread for the
    length of the fit, in worker processes for good.
    """

    def __init__(self, client: Client, *, workers_timeout_s: float = 60.0) -> None:
        self._client = client
        self._workers_timeout_s = workers_timeout_s
        self._run = f"0{uuid.uuid4().hex[:8]}"  # a leading digit keeps it out of key prefixes
        self._address = client.scheduler_info(n_workers=0)["address"]
        self._keys: set[str] = set()
        self._stack = contextlib.ExitStack()

    @property
    def description(self) -> str:
        """See `Executor.description`."""
        return f"on {self.n_workers} Dask worker threads, dashboard {self._client.dashboard_link}"

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

    def _workers(self) -> list[dict[str, Any]]:
        with _translated(self._client):
            return list(self._client.scheduler_info(n_workers=-1)["workers"].values())

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
        self._stack.enter_context(dask.config.set(_CONFIG))
        self._stack.enter_context(PinnedBlas())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        """See `Executor.submit`. The stage becomes the key's prefix on the dashboard."""
        stage, _, rest = key.partition("/")
        name = self._unique(f"{stage}-{self._run}-{rest}")
        with _translated(self._client), span("mscam", *_span_names(rest)):
            return self._client.submit(
                _run_pinned, function, *args, key=name, pure=False, retries=_RETRIES
            )

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
                results: list[Any] = self._client.gather(list(handles))  # type: ignore[no-untyped-call]
            except KilledWorker as error:
                raise self._worker_lost(error) from error
        return results

    def _wait(self, handles: list[Handle]) -> None:
        """Until all are done, as long as somebody is there to do them."""
        last_seen = time.monotonic()
        while handles:
            with contextlib.suppress(TimeoutError), self._client.as_current():
                wait(handles, timeout=_POLL_S)  # type: ignore[no-untyped-call]
                return
            if self.n_workers:
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen > self._workers_timeout_s:
                raise NoWorkersError(
                    f"every worker of {self._address} is gone, and none came back within "
                    f"{self._workers_timeout_s:g} s. Start workers and repeat the run; what was "
                    "checkpointed is intact"
                )

    def _unique(self, key: str) -> str:
        """The key, with a number where it was given before: names of views may look like paths."""
        name, count = key, 1
        while name in self._keys:
            count += 1
            name = f"{key} #{count}"
        self._keys.add(name)
        return name

    def _worker_lost(self, error: KilledWorker) -> WorkerLostError:
        task = str(error.task).replace(f"-{self._run}-", " ")
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
        raise _scheduler_lost(f"the client is {client.status}")
    try:
        yield
    except (
        FutureCancelledError,
        FuturesCancelledError,
        CommClosedError,
        ClosedClientError,
    ) as error:
        raise _scheduler_lost(str(error)) from error


def _scheduler_lost(reason: str) -> SchedulerLostError:
    return SchedulerLostError(
        f"the connection to the Dask scheduler was lost ({reason}); what was checkpointed is "
        "intact. Start the cluster again and repeat the run"
    )


def _span_names(rest: str) -> tuple[str, ...]:
    """Tasks of an outer iteration are grouped under it on the dashboard."""
    iteration = rest.split("/", maxsplit=1)[0]
    return (f"outer iteration {iteration}",) if iteration.isdigit() else ()


def _run_pinned(function: Callable[..., Any], *args: Any) -> Any:
    PinnedBlas.pin_for_good()
    return function(*args)
