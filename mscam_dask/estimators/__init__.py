"""Estimators with the scikit-learn API: `MSCAM` and `MSCAN` in `mscam_dask.estimators.mscam`."""

from __future__ import annotations
