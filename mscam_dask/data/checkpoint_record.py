"""The record of a checkpoint as strict JSON that gives every number back, to the last bit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["decode_record", "encode_record"]

_FORMAT = "mscam_dask.checkpoint"
_VERSION = 1
_NUMBER = "not finite"  # {"not finite": "nan"}: JSON has no NaN and no infinity


def encode_record(record: Mapping[str, Any]) -> bytes:
    """Return a record as indented JSON; floats are written so that they read back the same."""
    content = {"format": _FORMAT, "format_version": _VERSION, "record": _plain(record)}
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def decode_record(content: bytes) -> dict[str, Any]:
    """Read what `encode_record` wrote.

    Raises
    ------
    ValueError
        When it is something else, or of another version.
    """
    whole = json.loads(content)
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
        raise ValueError("it is no record of a checkpoint")
    if whole.get("format_version") != _VERSION:
        raise ValueError(
            f"format version {whole.get('format_version')!r}, this version reads {_VERSION}"
        )
    record = _restored(whole["record"])
    if not isinstance(record, dict):
        raise ValueError("its record is no mapping")
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_NUMBER: str(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_NUMBER}:
            return float(value[_NUMBER])
        return {key: _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value
