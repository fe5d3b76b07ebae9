"""pipeline/tls."""

from __future__ import annotations
