"""Tasks of a fit: they read views, call solvers and measure times.

Every function is importable, so that a worker process can run it; formulas are in
`mscam_dask.solvers`. Large results stay with the executor; small tasks such as `view_records`
return the parts that the driver needs.
"""
