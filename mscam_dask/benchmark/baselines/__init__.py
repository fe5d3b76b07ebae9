"""The baselines, each implemented from its paper; `mscam_dask.benchmark.methods` lists them."""
