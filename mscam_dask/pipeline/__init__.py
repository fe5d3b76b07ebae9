"""Pipelines: a TOML file in, a self-describing run directory out.

`read_config.read_config` checks the file, `resume.run_pipeline` does what it says; the names are
imported from those modules.
"""

from __future__ import annotations
