"""The mathematics, one concept per file: pure NumPy and SciPy on float64 arrays.

Rows are samples. Nothing here knows of Dask, of stores, of files, of clocks or of
global random state; whatever is random takes a `numpy.random.Generator`.
"""
