"""Settings as TOML text, for the copy of a pipeline that a run directory keeps."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from mscam_dask.pipeline.config.settings import Settings

__all__ = ["settings_text", "toml_text"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def settings_text(settings: Settings) -> str:
    """Return a pipeline file that says exactly these settings, defaults included."""
    tables = {
        "data": msgspec.to_builtins(settings.data),
        "cluster": {"method": settings.cluster.method, **settings.cluster.parameters},
        "execution": msgspec.to_builtins(settings.execution),
        "evaluate": msgspec.to_builtins(settings.evaluate),
        "report": msgspec.to_builtins(settings.report),
        "incremental": msgspec.to_builtins(settings.incremental),
        "output": msgspec.to_builtins(settings.output),
    }
    return toml_text(tables)


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Write tables of booleans, numbers, texts, lists and inline tables; None is left out.

    Examples
    --------
    >>> print(toml_text({"data": {"source": "digits", "views": ["pixels"], "path": None}}))
    [data]
    source = "digits"
    views = ["pixels"]
    <BLANKLINE>
    """
    blocks = []
    for name, table in tables.items():
        lines = [
            f"{_key(key)} = {_value(value)}" for key, value in table.items() if value is not None
        ]
        blocks.append("\n".join([f"[{_key(name)}]", *lines]) + "\n")
    return "\n".join(blocks)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    # JSON's escapes are TOML's, apart from DEL, which TOML wants escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int():
            return str(value)
        case float():
            return _number(value)
        case list() | tuple():
            return "[" + ", ".join(_value(item) for item in value) + "]"
        case dict():
            inner = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
            return "{" + inner + "}"
        case _:
            raise TypeError(f"{type(value).__name__} has no form in TOML: {value!r}")


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
