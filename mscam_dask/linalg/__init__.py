"""The mathematics, one concept per file: pure NumPy and SciPy.

Rows are samples. Arrays are float64, in single precision where a docstring says so. Nothing here
knows of Dask, of stores, of files, of clocks or of global random state; whatever is random takes a
`numpy.random.Generator`.
"""
