"""Executor on a Dask cluster; the only module of the engine that imports distributed.

Tasks are submitted with explicit keys and `pure=False`, results stay on the workers until they
are released, and nothing is scattered: the results of a lost worker are computed again. Beside
`Client.submit` and `Client.gather` there is only what Dask does not do, with the reason beside it:
typed errors in time, equal versions, tasks dealt to idle workers, aligned arguments.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import itertools
import re
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, cast

import dask.config
import sklearn.cluster  # noqa: F401  solvers import it where they need it; workers load it here, before their first task
from dask.base import annotate, get_annotations
from dask.utils import parse_timedelta
from distributed import Client, KilledWorker, wait
from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError
from distributed.comm.core import CommClosedError

import mscam_dask
from mscam_dask import __version__
from mscam_dask.engine.executors._process import (
    PinnedBlas,
    RefCountedContext,
    aligned,
    make_measurable,
    prepare_process,
    return_freed_memory,
)
from mscam_dask.engine.executors.base import Handle
from mscam_dask.errors import (
    ClusterError,
    ConfigurationError,
    NoWorkersError,
    SchedulerLostError,
    WorkerLostError,
    WorkersPausedError,
)

_GIB = 2.0**30

# Name of the spans of a fit, by which the dashboard groups tasks.
_TOP = "mscam"

POLL_S = 2.0
"""Seconds between two checks of a driver that waits."""

_START_POLL_S = 0.1
_CLEANING_S = 2.0

_TIMEOUT_SETTING = "mscam.workers-timeout"
_TIMEOUT_S = 60.0

# An exception may come from a disk or a network; those of this package are the same every time.
_RETRIES = 2

# Stages whose results are needed only when the first partition is scored: they run on workers that
# would be idle, above all during the eigensolver of the initial graph, which is one task.
_LOW_PRIORITY = frozenset({"reference_graphs", "points_of_view", "points", "view_agreement"})

# Stages of similar tasks with the same large arguments. The scheduler would leave them to the worker
# that has the arguments, even while others are idle. So each is submitted to the next worker in turn,
# and the scheduler may still move it.
_SPREAD_STAGES = frozenset({"exact_neighbors", "projected_distances", "solved_view"})

_FIT_CONFIG = RefCountedContext(
    lambda: dask.config.set(
        {
            # Views in the memory of the driver are sent inside tasks; the memory estimate bounds them.
            "distributed.admin.large-graph-warning-threshold": "4GiB",
            # A LocalCluster gives up a worker that is not back by then, and starts no other.
            "distributed.deploy.lost-worker-timeout": dask.config.get(
                "mscam.lost-worker-timeout", "120s"
            ),
        }
    )
)


def workers_timeout_s() -> float:
    """Seconds without a usable worker, or an answer of the scheduler, before a fit ends.

    Dask's setting `mscam.workers-timeout` (in the environment `DASK_MSCAM__WORKERS_TIMEOUT`), a
    number of seconds or a duration such as "5 minutes"; 60 s by default.
    """
    value = dask.config.get(_TIMEOUT_SETTING, None)
    try:
        seconds = _TIMEOUT_S if value is None else float(parse_timedelta(value))
    except (AttributeError, TypeError, ValueError, KeyError):
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise ConfigurationError(
            f"Dask's setting {_TIMEOUT_SETTING} = {value!r} is not a duration; allowed is a positive "
            "number of seconds, or a duration such as '5 minutes'."
        )
    return seconds


def present_workers(client: Client, timeout_s: float) -> dict[str, dict[str, Any]]:
    """Return the workers by address, as the scheduler describes them, within `timeout_s`."""
    with _answered(client, timeout_s):
        scheduler = cast("Any", client.scheduler)
        identity = client.sync(scheduler.identity, n_workers=-1, callback_timeout=timeout_s)
    return dict(identity["workers"])


def _address(client: Client) -> str:
    scheduler = cast("Any", client.scheduler)  # typed as optional; None only before the start
    return str(scheduler.address)


def wait_for_a_worker(client: Client, timeout_s: float) -> None:
    """Wait for up to `timeout_s` until a worker can run tasks."""
    watchdog = WorkerWatchdog(client, timeout_s)
    if watchdog.check():
        return
    with _translated(client):
        request = client.submit(int, key=f"mscam-start-{uuid.uuid4().hex}", pure=False)
    try:
        while not watchdog.check():
            time.sleep(_START_POLL_S)
    finally:
        request.release()


def check_versions(client: Client, timeout_s: float) -> None:
    """Check that every worker has this version of the package."""

    def installed() -> str:  # pickled by value, because workers may lack the package
        import mscam_dask

        return mscam_dask.__version__

    for worker, answer in ask_workers(client, installed, timeout_s=timeout_s).items():
        if isinstance(answer, BaseException):
            raise ClusterError(
                f"worker {worker} cannot run mscam_dask: {type(answer).__name__}: {answer}. "
                f"Install mscam-dask {__version__} on every worker."
            ) from answer
        if answer != __version__:
            raise ClusterError(
                f"worker {worker} has mscam_dask {answer}, this is {__version__}. Install the "
                "same version everywhere."
            )


def _load_package() -> None:
    """Load the modules of all tasks, and prepare the process; otherwise the first task of each worker waits for this."""
    _ = mscam_dask.MSCAM  # imports them
    prepare_process()


def ask_workers(
    client: Client, function: Callable[..., Any], *args: Any, timeout_s: float
) -> dict[str, Any]:
    """Run a function on every worker outside of tasks; results or exceptions by address."""
    with _answered(client, timeout_s):
        answers: dict[str, Any] = client.run(
            function, *args, on_error="return", callback_timeout=timeout_s
        )
    return {
        worker: answer
        for worker, answer in answers.items()
        if not isinstance(answer, CommClosedError | ConnectionError)
    }


def _spill_threshold_bytes(dask_worker: Any) -> int:
    """Bytes of results that a thread of a worker keeps in memory; 0 if it keeps all of them."""
    memory = dask_worker.memory_manager
    share, limit = memory.memory_target_fraction, memory.memory_limit
    spills = share and limit and memory.max_spill is False
    return int(share * limit / dask_worker.state.nthreads) if spills else 0


@dataclasses.dataclass
class WorkerWatchdog:
    """Check, repeated during a wait, that the cluster has a worker that can run tasks."""

    client: Client
    timeout_s: float
    last_seen: float = dataclasses.field(default_factory=time.monotonic)

    def check(self) -> bool:
        """Check for usable workers; whether there is one. An error if there has been none for too long.

        A worker starts tasks or runs one; Dask pauses it when its memory is full.
        """
        workers = list(present_workers(self.client, self.timeout_s).values())
        metrics = [worker.get("metrics") or {} for worker in workers]
        if any(
            worker["status"] == "running" or own.get("executing")
            for worker, own in zip(workers, metrics, strict=True)
        ):
            self.last_seen = time.monotonic()
            return True
        if time.monotonic() - self.last_seen <= self.timeout_s:
            return False
        address = _address(self.client)
        if not workers:
            raise NoWorkersError(
                f"the Dask scheduler {address} has had no worker for {self.timeout_s:g} s. "
                f"Start workers, for example dask worker {address}, and repeat the command."
            )
        used = [float(own.get("memory") or 0) / _GIB for own in metrics]
        limits = [float(worker.get("memory_limit") or float("inf")) / _GIB for worker in workers]
        fullest = max(range(len(workers)), key=lambda index: used[index] / limits[index])
        memory = (
            f"{used[fullest]:.2f} of {limits[fullest]:.2f} GiB in use "
            f"on {workers[fullest].get('name', 'one')}"
        )
        raise WorkersPausedError(
            f"all {len(workers)} Dask workers of {address} have been paused for "
            f"{self.timeout_s:g} s, because their memory is full ({memory}). Give workers more "
            "memory (--memory-limit) or use fewer of them, and repeat the command."
        )


def _phase_of(first: str) -> str | None:
    """Phase named by the first part of a key after the function: an iteration, a setting, or None."""
    if first.isdecimal():
        return f"outer iteration {int(first) + 1}"
    setting = re.fullmatch(r"setting-\d+-(\d+)", first)
    return None if setting is None else f"setting {int(setting[1]) + 1}"


def _span(name: str) -> dict[str, tuple[str, ...]]:
    """Span annotation of a task of an outer iteration, a setting, the "set-up" or the "result".

    All fits on a cluster share these spans. Dask's scheduler and workers keep totals for every
    span they have seen, so spans of its own for each fit would grow without bound.
    """
    caller = get_annotations().get("span", {"name": (), "ids": ()})
    top = "/".join((*caller["ids"][-1:], _TOP))
    return {
        "name": (*caller["name"], _TOP, name),
        "ids": (*caller["ids"], top, f"{top}/{name}"),
    }


def _scheduler_cleaner() -> Callable[..., None]:
    """Return a function for the scheduler that drops what it keeps of the tasks of ended fits.

    Dask's spans keep every task group and one record for each task submitted. The function is nested so
    that it is pickled by value: the scheduler may not have this package.
    """

    def clean(dask_scheduler: Any, top: str = _TOP) -> None:
        extension = dask_scheduler.extensions.get("spans")
        for span in () if extension is None else list(extension.spans_search_by_tag.get(top, ())):
            ended = [group for group in span.groups if group.name not in dask_scheduler.task_groups]
            span.groups.difference_update(ended)
            metadata = getattr(span, "_metadata", None)
            if metadata:
                del metadata["collections"][1:]

    return clean


class DaskExecutor:
    """Executor on the workers of a connected `distributed.Client`, which is neither opened nor closed here.

    Without a usable worker, or an answer of the scheduler, for `timeout_s` seconds (by default
    `workers_timeout_s`) there is an error. Workers inside this process (`LocalCluster(processes=False)`)
    have one BLAS thread while a fit runs, worker processes from the first task on.
    """

    def __init__(self, client: Client, *, timeout_s: float | None = None) -> None:
        self._client = client
        # address where the tasks can be watched, for `description`
        self.dashboard: str | None = None
        self._timeout_s = workers_timeout_s() if timeout_s is None else timeout_s
        # part of every key; a leading digit keeps it out of key prefixes
        self.run_id = f"0{uuid.uuid4().hex[:8]}"
        if client.status != "running":
            raise ClusterError(
                f"the Dask client is {client.status}; allowed is one that is connected. Make a new "
                "one, distributed.Client(address), or omit client to use threads of this process."
            )
        # workers that are threads of this process
        self.shares_memory = _address(client).startswith("inproc:")
        self._numbers = itertools.count()
        self._next_workers: tuple[str, Iterator[str]] = ("", iter(()))
        self._stack = contextlib.ExitStack()
        self._handles: weakref.WeakSet[Handle] = weakref.WeakSet()

    @property
    def description(self) -> str:
        watched = "" if self.dashboard is None else f", dashboard {self.dashboard}"
        return f"on {self.n_workers} Dask worker threads{watched}"

    @property
    def n_workers(self) -> int:
        return int(sum(worker["nthreads"] for worker in self._workers().values()))

    @property
    def memory_limit_bytes(self) -> int | None:
        limits = [
            worker["memory_limit"] // worker["nthreads"]
            for worker in self._workers().values()
            if worker["memory_limit"]
        ]
        return min(limits) if limits else None

    @property
    def spill_threshold_bytes(self) -> int | None:
        # Dask's setting distributed.worker.memory.target
        if self.shares_memory:
            return None
        answers = ask_workers(self._client, _spill_threshold_bytes, timeout_s=self._timeout_s)
        kept = (answer if isinstance(answer, int) else 0 for answer in answers.values())
        return min(kept, default=0) or None

    def _workers(self) -> dict[str, dict[str, Any]]:
        return present_workers(self._client, self._timeout_s)

    def __enter__(self) -> Self:
        wait_for_a_worker(self._client, self._timeout_s)
        if not self.shares_memory:
            check_versions(self._client, self._timeout_s)
            # the first task of a slow worker waits until it has loaded; a lost scheduler fails the next request
            with contextlib.suppress(SchedulerLostError):
                ask_workers(self._client, _load_package, timeout_s=self._timeout_s)
        self._stack.enter_context(_FIT_CONFIG)
        self._stack.enter_context(PinnedBlas())
        return self

    def __exit__(self, *error: object) -> None:
        # an exception that is kept refers to handles, and these to results on the workers
        if self._client.status == "running":
            for handle in list(self._handles):
                handle.release()
            # without it the next fit does the same; an error on the way out says more than its own
            with contextlib.suppress(Exception):
                self._client.run_on_scheduler(_scheduler_cleaner(), callback_timeout=_CLEANING_S)
        self._stack.close()

    def submit(self, function: Callable[..., Any], /, *args: Any, key: str) -> Handle:
        stage, _, name = key.partition("/")
        first, _, rest = name.partition("/")
        group = f"{stage}-{self.run_id}"
        phase = _phase_of(first)
        if phase is not None:
            group, name = f"{group}-{first}", rest
        worker = self._next_worker(group) if stage in _SPREAD_STAGES else None
        span = _span(phase or ("result" if first == "final" else "set-up"))
        with _translated(self._client), annotate(span=span):
            handle = self._client.submit(
                _run_pinned,
                function,
                *args,
                key=(group, f"{next(self._numbers)}/{name}"),  # names of views may look like paths
                pure=False,
                retries=_RETRIES,
                workers=None if worker is None else [worker],
                allow_other_workers=worker is not None,
                priority=-1 if stage in _LOW_PRIORITY else 0,
            )
        self._handles.add(handle)
        return handle

    def _next_worker(self, group: str) -> str | None:
        """Return a worker for the next task of a group: each in turn, as often as it has threads."""
        current, workers_in_turn = self._next_workers
        if current != group:
            workers = self._workers()
            workers_in_turn = itertools.cycle(
                [address for address, worker in workers.items() for _ in range(worker["nthreads"])]
            )
            self._next_workers = (group, workers_in_turn)
        return next(workers_in_turn, None)

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        """Return the results, or raise an error if workers or the scheduler are lost for too long."""
        if not handles:
            return []
        watchdog, loop = self.watchdog(), cast("Any", self._client.loop)
        with _translated(self._client):
            gathering = asyncio.run_coroutine_threadsafe(
                self._results(list(handles)), loop.asyncio_loop
            )
            try:
                while not concurrent.futures.wait([gathering], POLL_S).done:
                    watchdog.check()
                return gathering.result()
            except KilledWorker as error:
                raise self._worker_lost(error) from error
            finally:
                gathering.cancel()

    async def _results(self, handles: list[Handle]) -> list[Any]:
        """Results of tasks, once all of them have ended."""
        with self._client.as_current():
            await cast("Any", wait(handles))
        results: list[Any] = await cast("Any", self._client.gather(handles))
        return results

    def watchdog(self) -> WorkerWatchdog:
        """Return the check, repeated during a wait, that workers are left."""
        return WorkerWatchdog(self._client, self._timeout_s)

    def _worker_lost(self, error: KilledWorker) -> WorkerLostError:
        group, name = error.task if isinstance(error.task, tuple) else (error.task, "")
        stage, _, first = str(group).partition(f"-{self.run_id}")
        parts = first.strip("-"), str(name).partition("/")[2]  # without the number
        task = f"{stage} {'/'.join(filter(None, parts))}"
        limit = self.memory_limit_bytes
        memory = f"the smallest worker's limit is {limit / _GIB:.1f} GiB" if limit else "no limit"
        return WorkerLostError(
            f"task {task!r} was given up after {error.allowed_failures + 1} workers died while "
            f"running it, the last one {error.last_worker.address}. They most likely ran out of "
            f"memory ({memory}): give workers more memory or fewer threads, and read their logs."
        )


@contextlib.contextmanager
def _translated(client: Client) -> Iterator[None]:
    """Translate the exceptions of Dask after the scheduler is lost into one error."""
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


@contextlib.contextmanager
def _answered(client: Client, timeout_s: float) -> Iterator[None]:
    """Translate the exceptions of a request to the scheduler, or through it to the workers."""
    with _translated(client):
        try:
            yield
        except TimeoutError as error:
            raise SchedulerLostError(
                f"the Dask scheduler {_address(client)}, or one of its workers, has not answered for "
                f"{timeout_s:g} s. Start it again and repeat the command; a fit continues from its checkpoint if it "
                "has one."
            ) from error
        except OSError as error:
            raise _scheduler_lost() from error


def _scheduler_lost() -> SchedulerLostError:
    return SchedulerLostError(
        "the connection to the Dask scheduler was lost, or its cluster was restarted. Repeat the fit when "
        "the cluster is back; it continues from its checkpoint if it has one."
    )


def _run_pinned(function: Callable[..., Any], *args: Any) -> Any:
    PinnedBlas.pin_permanently()
    prepare_process()
    result = function(*(aligned(argument) for argument in args))
    return_freed_memory()
    make_measurable(result)
    return result
