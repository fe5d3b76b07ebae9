"""Configuration of a pipeline: TOML documents, settings and their validation."""

from __future__ import annotations
