"""Views: row sources, conversion, validation and sampling."""

from __future__ import annotations
