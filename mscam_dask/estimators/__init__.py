"""Estimators with the scikit-learn API: `MSCAM` and `MSCAN`."""

from __future__ import annotations

from mscam_dask.estimators.mscam import MSCAM
from mscam_dask.estimators.mscan import MSCAN

__all__ = ["MSCAM", "MSCAN"]
