"""Versions of the software that the numbers of a run depend on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mscam_dask import __version__

__all__ = ["blas_libraries", "software_versions"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "xarray")


def software_versions() -> dict[str, str]:
    """Return the versions of Python, this package and its numerical dependencies."""
    versions = {
        "mscam_dask": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    return versions


def blas_libraries() -> tuple[dict[str, Any], ...]:
    """Return the linear algebra libraries of this process, without their paths.

    A fit limits each to one thread, whatever `num_threads` is.
    """
    from threadpoolctl import threadpool_info

    return tuple(
        {
            key: library.get(key)
            for key in ("user_api", "internal_api", "version", "architecture", "num_threads")
        }
        for library in threadpool_info()
    )
