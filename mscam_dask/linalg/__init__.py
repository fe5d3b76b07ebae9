"""Numerical routines in NumPy and SciPy, one concept per file.

Rows are samples. Arrays are float64 unless a docstring says otherwise. Nothing here depends on
Dask, stores, files, clocks or global random state; random functions take a
`numpy.random.Generator`.
"""
