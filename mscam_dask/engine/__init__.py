"""Run of a fit: tasks, executors, memory estimate and driver loop; formulas are in `mscam_dask.solvers`."""
