"""data/views."""

from __future__ import annotations
