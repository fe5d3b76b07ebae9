"""Driver: sends the events of a fit to the scheduler, without blocking the fit."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distributed.comm.core import CommClosedError

from mscam_dask.monitor.dashboard.plugin import (
    NO_BOKEH,
    NO_DASHBOARD,
    TOPIC,
    install,
    page_address,
)
from mscam_dask.monitor.events import Event, RunAnnounced, encode
from mscam_dask.types.events import FitFailed, FitFinished

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClusterEvents", "ensure_page", "page_link"]

_logger = logging.getLogger(__name__)

_MAX_WAITING = 256  # events; the oldest are dropped first
_SEND_TIMEOUT_S = 10.0
_FLUSH_TIMEOUT_S = 2.0  # at the start and the end of a fit

_problems: weakref.WeakKeyDictionary[Client, str | None] = weakref.WeakKeyDictionary()


def ensure_page(client: Client, *, log: bool = True) -> str | None:
    """Install the page and the metrics on the scheduler.

    Parameters
    ----------
    client : distributed.Client
    log : bool
        Log once for each client why there is no page: a warning, or an info message for a cluster
        without a dashboard.

    Returns
    -------
    str or None
        Reason why there is no page; None if there is one.

    Notes
    -----
    A fit does not need the page, so problems are logged and not raised.
    """
    if client in _problems:
        return _problems[client]
    problem: str | None
    try:
        problem = client.run_on_scheduler(install)
    except ImportError as error:
        problem = f"mscam_dask is not installed on the scheduler ({error})"
    except Exception as error:  # noqa: BLE001 - any exception of the scheduler
        problem = f"the scheduler cannot serve the page: {type(error).__name__}: {error}"
    _problems[client] = problem
    if problem is not None and log:
        level = logging.INFO if problem == NO_DASHBOARD else logging.WARNING
        _logger.log(level, "No page 'mscam' on the Dask dashboard: %s", problem)
    return problem


def page_link(client: Client) -> str | None:
    """Return the address of the page, or of the Dask dashboard, or None without a dashboard.

    Parameters
    ----------
    client : distributed.Client
        The page is installed on its scheduler if possible; see `ensure_page`.
    """
    problem = ensure_page(client, log=False)
    served = client.scheduler_info(n_workers=0).get("services", {})
    if problem in (NO_BOKEH, NO_DASHBOARD) or "dashboard" not in served:
        return None
    link = str(client.dashboard_link)
    return page_address(link) if problem is None else link


class ClusterEvents:
    """Observer that sends events to the scheduler, for the dashboard and the metrics.

    Parameters
    ----------
    client : distributed.Client
    name : str, optional
        Name of the runs; by default the numbers of samples and views.
    max_waiting : int
        Events kept for a scheduler that does not accept them; the oldest are dropped.
    flush_timeout_s : float
        Seconds that a fit waits at its start and end until all events are sent.

    Notes
    -----
    Estimators with a client create one; add one to their callbacks to name the run. Events are sent
    in the event loop of the client. If the scheduler does not accept them in time, the oldest of
    more than `max_waiting` are dropped, and their number is sent. The fit waits only at its start
    and end, at most `flush_timeout_s` each.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str | None = None,
        max_waiting: int = _MAX_WAITING,
        flush_timeout_s: float = _FLUSH_TIMEOUT_S,
    ) -> None:
        self._client: Any = client
        self._name = name
        self._max_waiting = max_waiting
        self._flush_timeout_s = flush_timeout_s
        self._run_id: str | None = None
        self._waiting: deque[dict[str, Any]] = deque()
        self._n_dropped = 0
        self._lock = threading.Lock()
        self._sending = False
        self._idle = threading.Event()
        self._idle.set()

    def serves(self, client: object) -> bool:
        """Return whether events go to the scheduler of this client."""
        return self._client is client

    def new_run(
        self, run_id: str, *, views: Sequence[str], n_samples: int, n_clusters: int
    ) -> None:
        """Announce a fit before its first task; `run_id` is that of its task keys."""
        ensure_page(self._client)
        self._run_id = run_id
        self._put(
            RunAnnounced(
                name=self._name or f"{n_samples} samples, {len(views)} views",
                client=str(self._client.id),
                views=tuple(views),
                n_samples=n_samples,
                n_clusters=n_clusters,
            )
        )
        self._idle.wait(self._flush_timeout_s)  # the announcement arrives before the tasks

    def __deepcopy__(self, memo: object) -> ClusterEvents:
        """Return the same object: clones of an estimator report to the same cluster."""
        return self

    def __call__(self, event: Event) -> None:
        """Send an event of the latest run."""
        if self._run_id is None:
            return
        self._put(event)
        if isinstance(event, FitFinished | FitFailed):
            self._idle.wait(self._flush_timeout_s)
            self._run_id = None

    def _put(self, event: Event | RunAnnounced) -> None:
        message = encode(event)
        if message is None:
            return
        message["run"] = self._run_id
        with self._lock:
            if len(self._waiting) >= self._max_waiting:
                self._waiting.popleft()
                self._n_dropped += 1
            self._waiting.append(message)
            if self._sending:
                return
            self._sending = True
            self._idle.clear()
        self._client.loop.add_callback(self._send)

    async def _send(self) -> None:
        """Send all waiting events; those that cannot be sent are dropped and counted."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._sending = False
                    self._idle.set()
                    return
                events, dropped = list(self._waiting), self._n_dropped
                self._waiting.clear()
                self._n_dropped = 0
            message = {"dropped": dropped, "events": events}
            try:
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await self._client.scheduler.log_event(topic=TOPIC, msg=message)
            except (OSError, CommClosedError, TimeoutError) as error:
                _logger.debug("%d events not sent: %s", len(events), error)
                with self._lock:
                    self._n_dropped += dropped + len(events)
