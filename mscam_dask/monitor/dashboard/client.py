"""The driver's side: a fit's events go to the scheduler without holding the fit up."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distributed.comm.core import CommClosedError

from mscam_dask.monitor.dashboard.codec import RunAnnounced, encode
from mscam_dask.monitor.dashboard.plugin import (
    NO_BOKEH,
    NO_DASHBOARD,
    TOPIC,
    install,
    page_address,
)
from mscam_dask.monitor.events import Event
from mscam_dask.types.events import FitFailed, FitFinished

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClusterEvents", "ensure_page", "page_link"]

_logger = logging.getLogger(__name__)

_MOST_WAITING = 256  # events; the oldest go first
_SEND_TIMEOUT_S = 10.0
_LAST_WORDS_S = 2.0  # that the end of a fit waits for what is still to be sent

_asked: weakref.WeakKeyDictionary[Client, str | None] = weakref.WeakKeyDictionary()


def ensure_page(client: Client, *, log: bool = True) -> str | None:
    """Have the scheduler serve page and metrics, if it can.

    Parameters
    ----------
    client : distributed.Client
    log : bool
        Log a warning, once for each client, when there is no page and it was not asked for a
        cluster without a dashboard.

    Returns
    -------
    str or None
        Why there is no page; None when there is one.

    Notes
    -----
    A fit does not need the page: whatever is wrong with it is said and the fit goes on.
    """
    if client in _asked:
        return _asked[client]
    problem: str | None
    try:
        problem = client.run_on_scheduler(install)
    except ImportError as error:
        problem = f"mscam_dask is not installed where the scheduler runs ({error})"
    except Exception as error:  # noqa: BLE001 - of any kind, from another machine
        problem = f"the scheduler cannot serve it: {type(error).__name__}: {error}"
    _asked[client] = problem
    if problem is not None and log:
        level = logging.INFO if problem == NO_DASHBOARD else logging.WARNING
        _logger.log(level, "No page 'mscam' on the Dask dashboard: %s", problem)
    return problem


def page_link(client: Client) -> str | None:
    """Return the page's address; Dask's own dashboard's where it lacks the page, None without one.

    Parameters
    ----------
    client : distributed.Client
        The page is set up on its scheduler if it can be; what is in the way, `ensure_page` tells.
    """
    problem = ensure_page(client, log=False)
    served = client.scheduler_info(n_workers=0).get("services", {})
    if problem in (NO_BOKEH, NO_DASHBOARD) or "dashboard" not in served:
        return None
    link = str(client.dashboard_link)
    return page_address(link) if problem is None else link


class ClusterEvents:
    """An observer that sends what it sees to the scheduler, for the dashboard and metrics.

    Parameters
    ----------
    client : distributed.Client
    name : str, optional
        Of the runs, for people. By default "fit" and the number of samples.
    most_waiting : int
        Events kept for a scheduler that does not take them; the oldest are dropped.
    last_words_s : float
        Seconds that the end of a fit waits for what is still to be sent.

    Notes
    -----
    Estimators with a client make one themselves; give one among their callbacks to name the run.
    Sending happens in the client's event loop. When the scheduler does not take the events in
    time, the oldest of more than `most_waiting` ones are dropped and their number is sent instead;
    the fit never waits, except for at most `last_words_s` at its start and end.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str | None = None,
        most_waiting: int = _MOST_WAITING,
        last_words_s: float = _LAST_WORDS_S,
    ) -> None:
        self._client: Any = client
        self._name = name
        self._most_waiting = most_waiting
        self._last_words_s = last_words_s
        self._run_id: str | None = None
        self._waiting: deque[dict[str, Any]] = deque()
        self._n_dropped = 0
        self._lock = threading.Lock()
        self._sending = False
        self._idle = threading.Event()
        self._idle.set()

    def serves(self, client: object) -> bool:
        """Whether events go to the scheduler of this client."""
        return self._client is client

    def new_run(self, *, views: Sequence[str], n_samples: int, n_clusters: int) -> str:
        """Announce a fit before its first task; returns its id, which belongs into task keys."""
        ensure_page(self._client)
        # A leading digit keeps it out of the prefixes that Dask makes of keys.
        self._run_id = f"0{uuid.uuid4().hex[:8]}"
        self._put(
            RunAnnounced(
                name=self._name or f"{n_samples} samples, {len(views)} views",
                client=str(self._client.id),
                views=tuple(views),
                n_samples=n_samples,
                n_clusters=n_clusters,
            )
        )
        self._idle.wait(self._last_words_s)  # tasks are to find their run there
        return self._run_id

    def __deepcopy__(self, memo: object) -> ClusterEvents:
        """Clones of an estimator report to the same cluster."""
        return self

    def __call__(self, event: Event) -> None:
        """Send an event of the run announced last."""
        if self._run_id is None:
            return
        self._put(event)
        if isinstance(event, FitFinished | FitFailed):
            self._idle.wait(self._last_words_s)
            self._run_id = None

    def _put(self, event: Event | RunAnnounced) -> None:
        message = encode(event)
        if message is None:
            return
        message["run"] = self._run_id
        with self._lock:
            if len(self._waiting) >= self._most_waiting:
                self._waiting.popleft()
                self._n_dropped += 1
            self._waiting.append(message)
            if self._sending:
                return
            self._sending = True
            self._idle.clear()
        self._client.loop.add_callback(self._send)

    async def _send(self) -> None:
        """Send until nothing waits; what cannot be sent is lost and counted."""
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
