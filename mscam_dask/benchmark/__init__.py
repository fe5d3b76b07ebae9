"""The paper's experiments as pipelines: comparison, robustness and sensitivity.

An experiment is a set of trials, each one fit of one method on one data set with one setting and one
seed. Trials run as Dask tasks and are kept in one file each, so that a killed experiment resumes.
`mscam_dask.benchmark.results` defines the results.
"""

from __future__ import annotations
