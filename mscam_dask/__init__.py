"""Multi-view clustering with an adaptive consensus graph (MSCAM, MSCAN), on Dask and Zarr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mscam_dask import plot
    from mscam_dask.data.views.as_multi_view import views_of
    from mscam_dask.estimators._anndata import write_anndata
    from mscam_dask.estimators.mscam import MSCAM, MSCAN
    from mscam_dask.pipeline.load_run import load_run
    from mscam_dask.types.parameters import Constants
    from mscam_dask.types.result import Status

__all__ = [
    "MSCAM",
    "MSCAN",
    "Constants",
    "Status",
    "__version__",
    "load_run",
    "plot",
    "views_of",
    "write_anndata",
]

__version__ = "0.1.0"

_HOMES = {
    "MSCAM": "mscam_dask.estimators.mscam",
    "MSCAN": "mscam_dask.estimators.mscam",
    "Constants": "mscam_dask.types.parameters",
    "Status": "mscam_dask.types.result",
    "load_run": "mscam_dask.pipeline.load_run",
    "views_of": "mscam_dask.data.views.as_multi_view",
    "write_anndata": "mscam_dask.estimators._anndata",
}


def __getattr__(name: str) -> Any:
    """Import public names when they are first used: the command line starts without NumPy."""
    import importlib

    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "plot":
        return importlib.import_module("mscam_dask.plot")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
