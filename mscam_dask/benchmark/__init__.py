"""The paper's experiments as pipelines: comparison, robustness, sensitivity.

An experiment is a set of cells, each one fit of one method on one data set with one seed and one
setting. Cells run as Dask tasks and are kept one file each, so that an experiment that was
killed goes on where it was. `mscam_dask.benchmark.results` is what comes out.
"""

from __future__ import annotations
