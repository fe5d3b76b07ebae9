"""engine/executors."""

from __future__ import annotations
