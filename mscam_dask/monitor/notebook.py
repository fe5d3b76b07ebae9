"""Progress in a notebook: one HTML output that is updated, without widgets or JavaScript."""

from __future__ import annotations

import time
from collections import deque
from html import escape
from types import TracebackType
from typing import Any, Self

from mscam_dask.monitor.events import Event, StepFinished, StepStarted
from mscam_dask.monitor.messages import (
    ProgressTracker,
    duration,
    format_event,
    largest_residual,
    printable,
)
from mscam_dask.types.events import (
    FitFailed,
    FitFinished,
    FitStarted,
    IterationFinished,
    SettingsSelected,
)

__all__ = ["NotebookProgress"]

_ROWS = 8
_CELL = 'style="text-align:right;padding:1px 14px 1px 0;font-variant-numeric:tabular-nums"'
_TITLES = ("iteration", "components", "\u03bb", "score", "residual", "seconds")


class NotebookProgress:
    """Progress of a fit or a run, below the notebook cell that runs it.

    Notes
    -----
    The kernel updates the HTML of one output. It works in Jupyter, in editors and in notebooks
    that run unattended, whose files keep the last state.
    """

    def __init__(self) -> None:
        self._shown: Any = None
        self._lines: list[str] = []
        self._tracker = ProgressTracker()
        self._settings: list[str] = []
        self._rows: deque[IterationFinished] = deque(maxlen=_ROWS)
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._show()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self._tracker.add(event)
        lines = format_event(event, self._tracker)
        match event:
            case StepStarted():
                self._since = time.monotonic()
                self._lines.append(f"{event.step} ...")
            case StepFinished():
                self._lines[-1:] = [f"{event.step}: {event.summary} ({event.seconds:.1f} s)"]
                self._lines += [f"note: {note}" for note in event.notes]
            case FitStarted():
                self._since = time.monotonic()
                self._rows.clear()
                self._settings = []
                self._lines += lines
            case SettingsSelected():
                self._settings = lines
            case IterationFinished():
                self._rows.append(event)
            case FitFailed():
                self._lines += [*lines, *([event.message] if event.message else [])]
                self._tracker.started = self._tracker.max_iter = None
            case _:
                self._lines += lines
                if isinstance(event, FitFinished):
                    self._tracker.started = self._tracker.max_iter = None
        self._show()

    def _show(self) -> None:
        from IPython.display import HTML, display

        content = HTML(self.html())
        if self._shown is None:
            self._shown = display(content, display_id=True)
        else:
            self._shown.update(content)

    def html(self) -> str:
        """HTML of the output; everything that came from data is escaped."""
        return (
            f'<div style="font-size:90%;line-height:1.5">{_divs(self._lines)}{self._table()}</div>'
        )

    def _table(self) -> str:
        if not self._rows and self._tracker.started is None:
            return ""
        if not self._rows:
            elapsed = duration(time.monotonic() - self._since)
            return f"<div>selecting settings, {elapsed} elapsed</div>"
        rows = "".join(
            f"<tr>{''.join(f'<td {_CELL}>{cell}</td>' for cell in _cells(record))}</tr>"
            for record in self._rows
        )
        titles = "".join(f"<th {_CELL}>{title}</th>" for title in _TITLES)
        bar = ""
        if self._tracker.max_iter is not None:
            bar = (
                f'<div><progress max="{self._tracker.max_iter}" value="{self._tracker.n_done}">'
                f"</progress> iteration {self._tracker.n_done_of_max}, ETA "
                f"{escape(self._tracker.eta)}</div>"
            )
        return (
            f"{_divs(self._settings)}<table><thead><tr>{titles}</tr></thead>"
            f"<tbody>{rows}</tbody></table>{bar}"
        )


def _divs(lines: list[str]) -> str:
    return "".join(f"<div>{escape(printable(line))}</div>" for line in lines)


def _cells(record: IterationFinished) -> tuple[str, ...]:
    return (
        str(record.iteration + 1),
        f"{record.n_connected_components} of {record.n_clusters}",
        f"{record.graph_weight:.4g}",
        f"{record.score:.4f}",
        f"{largest_residual(record):.1e}",
        f"{record.seconds:.2f}",
    )
