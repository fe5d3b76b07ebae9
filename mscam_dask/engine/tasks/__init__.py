"""The tasks of a fit: what is read, which solver is called, how long it took.

Every function is importable, so that a worker process can run it; formulas are in
`mscam_dask.solvers`. Large results stay with the executor; `*_record` and `*_of` tasks take out
of them what the driver needs.
"""
