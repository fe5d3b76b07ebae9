"""Pipelines: a TOML file in, a self-describing run directory out.

`config.read_config` checks the file, `run.run_pipeline` does what it says; the names are
imported from those modules.
"""

from __future__ import annotations
