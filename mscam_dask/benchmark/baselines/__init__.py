"""The methods MSCAM is compared with, each rebuilt from its paper, one file each.

`mscam_dask.benchmark.baselines.registry` lists them; a method's module is imported when it is first made.
"""
