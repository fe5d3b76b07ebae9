"""Adapter of scikit-learn callbacks (1.9 and later) to the events of a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from mscam_dask.monitor.events import Event
from mscam_dask.types.events import FitFailed, FitFinished, FitStarted, IterationFinished

try:
    from sklearn import callback as _callback
except ImportError:  # scikit-learn before 1.9: estimators have no set_callbacks
    _callback = None

_Method = TypeVar("_Method", bound=Callable[..., Any])

# Base class of the estimators; it has `set_callbacks` if scikit-learn has callbacks.
CallbackSupportMixin: Any = (
    type("NoCallbacks", (), {}) if _callback is None else _callback.CallbackSupportMixin
)


__all__ = ["CallbackSupportMixin", "FitCallbacks", "with_callbacks"]


def with_callbacks(method: _Method) -> _Method:
    """Decorator of `fit` that tears down the callbacks of an estimator at the end, also on failure."""
    return method if _callback is None else cast("_Method", _callback.with_callbacks(method))


class FitCallbacks:
    """Observer that forwards the events of a fit to the callbacks set by ``set_callbacks``.

    Parameters
    ----------
    estimator
        Estimator that is being fitted, inside `with_callbacks`.

    Notes
    -----
    The fit is the root task, with at most `max_iter` subtasks "outer iteration"; their number is not
    known in advance. A subtask begins and ends when its iteration is over. Early stopping by a
    callback is ignored, because the outer loop has its own stopping rule.
    """

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self._context = estimator._init_callback_context(max_subtasks=None)
        self._begun = False

    @staticmethod
    def are_set(estimator: Any) -> bool:
        """Whether callbacks are set on the estimator or on a meta-estimator around it."""
        return hasattr(estimator, "_skl_callbacks") or hasattr(estimator, "_parent_callback_ctx")

    def __call__(self, event: Event) -> None:
        """Forward an event to the callbacks."""
        match event:
            case FitStarted():
                self._begun = True
                self._context.call_on_fit_task_begin(estimator=self._estimator)
            case IterationFinished():
                step = self._context.subcontext(task_name="outer iteration")
                step.call_on_fit_task_begin(estimator=self._estimator)
                step.call_on_fit_task_end(estimator=self._estimator)
            case FitFinished() | FitFailed() if self._begun:
                self._context.call_on_fit_task_end(estimator=self._estimator)
