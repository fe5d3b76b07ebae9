"""Reports of runs: one self-contained HTML file each, whose size does not grow with the number of samples."""

from __future__ import annotations
