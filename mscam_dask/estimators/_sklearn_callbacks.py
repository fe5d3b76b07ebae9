"""Callbacks of scikit-learn, from version 1.9, on the outer iterations of a fit."""

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

# A base class of the estimators, with `set_callbacks` where there are callbacks.
CallbackSupportMixin: Any = (
    type("NoCallbacks", (), {}) if _callback is None else _callback.CallbackSupportMixin
)


__all__ = ["CallbackSupportMixin", "FitCallbacks", "with_callbacks"]


def with_callbacks(method: _Method) -> _Method:
    """Tear the callbacks of an estimator down after its `fit`, whether it ends or fails."""
    return method if _callback is None else cast("_Method", _callback.with_callbacks(method))


class FitCallbacks:
    """An observer that calls what ``estimator.set_callbacks`` was given.

    Parameters
    ----------
    estimator
        Being fitted, inside of `with_callbacks`.

    Notes
    -----
    The fit is the root task, of at most `max_iter` tasks "outer iteration"; how many there
    will be is not known before. A task begins and ends when its iteration is over. A callback
    that asks for an early stop is not heard: the path has a stopping rule of its own.
    """

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self._context = estimator._init_callback_context(max_subtasks=None)
        self._begun = False

    @staticmethod
    def are_set(estimator: Any) -> bool:
        """Whether there is anything to call: given to the estimator, or to one around it."""
        return hasattr(estimator, "_skl_callbacks") or hasattr(estimator, "_parent_callback_ctx")

    def __call__(self, event: Event) -> None:
        """Hand an event on."""
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
