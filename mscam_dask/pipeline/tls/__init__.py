"""TLS: certificates of a cluster, and checks of a connection."""

from __future__ import annotations
