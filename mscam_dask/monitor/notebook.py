"""Progress in a notebook: one output that is replaced, without widgets or JavaScript."""

from __future__ import annotations

import time
from collections import deque
from html import escape
from types import TracebackType
from typing import Any, Self

from mscam_dask.monitor.events import Event, FitResumed, StepFinished, StepStarted
from mscam_dask.monitor.messages import (
    ProgressTracker,
    count_sentence,
    duration,
    end_sentence,
    failure_sentence,
    fit_sentence,
    largest_residual,
    learning_sentence,
    printable,
    resumed_sentence,
    setting_sentence,
)
from mscam_dask.types.events import (
    FitFailed,
    FitFinished,
    FitStarted,
    IterationFinished,
    NClustersSelected,
    RefinementFinished,
    SettingsSelected,
)

__all__ = ["NotebookProgress"]

_ROWS = 8
_CELL = 'style="text-align:right;padding:1px 14px 1px 0;font-variant-numeric:tabular-nums"'
_TITLES = ("iteration", "components", "graph weight", "score", "residual", "seconds")


class NotebookProgress:
    """Shows a fit, or the steps of a run, below the cell that runs it.

    Notes
    -----
    The output is HTML that the kernel replaces as events come: it works in Jupyter, in editors
    and in notebooks that run unattended, whose files keep how the fit ended.
    """

    def __init__(self) -> None:
        self._shown: Any = None
        self._lines: list[str] = []
        self._pace = ProgressTracker()
        self._setting = ""
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
        self._pace.add(event)
        match event:
            case StepStarted():
                self._since = time.monotonic()
                self._lines.append(f"{event.step} ...")
            case StepFinished():
                self._lines[-1:] = [f"{event.step}: {event.summary} ({event.seconds:.1f} s)"]
                self._lines += [f"note: {note}" for note in event.notes]
            case FitResumed():
                self._lines.append(resumed_sentence(event))
                self._lines += [f"note: {note}" for note in event.notes]
            case FitStarted():
                self._since = time.monotonic()
                self._rows.clear()
                self._setting = ""
                self._lines.append(f"{fit_sentence(event)}, {event.executor}")
            case NClustersSelected():
                self._lines.append(f"{count_sentence(event)} ({event.seconds:.1f} s)")
            case SettingsSelected():
                self._setting = printable(setting_sentence(event))
            case IterationFinished():
                self._rows.append(event)
            case RefinementFinished():
                self._lines.append(
                    f"{learning_sentence(event.scores, event.taken)} ({event.seconds:.1f} s)"
                )
            case FitFinished():
                self._lines.append(f"{end_sentence(event)} ({event.seconds:.1f} s)")
                self._pace.started = None
            case FitFailed():
                said = f": {event.message}" if event.message else ""
                self._lines.append(failure_sentence(event) + said)
                self._pace.started = None
        self._show()

    def _show(self) -> None:
        from IPython.display import HTML, display

        content = HTML(self.html())
        if self._shown is None:
            self._shown = display(content, display_id=True)
        else:
            self._shown.update(content)

    def html(self) -> str:
        """Return what is shown; everything that came from data is escaped."""
        lines = "".join(f"<div>{escape(printable(line))}</div>" for line in self._lines)
        return f'<div style="font-size:90%;line-height:1.5">{lines}{self._table()}</div>'

    def _table(self) -> str:
        started = self._pace.started
        if not self._rows and started is None:
            return ""
        if not self._rows:
            elapsed = duration(time.monotonic() - self._since)
            return f"<div>choosing a setting, {elapsed} so far</div>"
        rows = "".join(
            f"<tr>{''.join(f'<td {_CELL}>{cell}</td>' for cell in _cells(record))}</tr>"
            for record in self._rows
        )
        titles = "".join(f"<th {_CELL}>{title}</th>" for title in _TITLES)
        bar = ""
        if started is not None:
            bar = (
                f'<div><progress max="{started.max_iter}" value="{self._pace.n_done}">'
                f"</progress> {self._pace.n_done} of at most {started.max_iter}, at most "
                f"{self._pace.at_most} to go</div>"
            )
        setting = f"<div>{escape(self._setting)}</div>"
        return f"{setting}<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>{bar}"


def _cells(record: IterationFinished) -> tuple[str, ...]:
    return (
        str(record.iteration + 1),
        f"{record.n_connected_components} of {record.n_clusters}",
        f"{record.graph_weight:.4g}",
        f"{record.score:.4f}",
        f"{largest_residual(record):.1e}",
        f"{record.seconds:.2f}",
    )
