"""pipeline/config."""

from __future__ import annotations
