"""What is wrong with a value of a pipeline file, said in the words of TOML."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec

from mscam_dask.pipeline.config.toml_document import Document

__all__ = ["choices", "nearest", "shown", "type_problem"]

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return the question whether the closest allowed name was meant, or nothing."""
    close = difflib.get_close_matches(name.lower(), list(allowed), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def choices(annotation: Any) -> tuple[str, ...]:
    """Return the texts that a type allows, wherever in it they are written, each once.

    Examples
    --------
    >>> choices(list[Literal["rows", "columns"]] | None)
    ('rows', 'columns')
    """
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    found = (text for part in get_args(annotation) for text in choices(part))
    return tuple(dict.fromkeys(found))


def type_problem(
    document: Document,
    table: str,
    given: Mapping[str, Any],
    error: msgspec.ValidationError,
    kind: type[msgspec.Struct],
) -> str:
    """Turn msgspec's sentence about a table into one with place, key and value."""
    reason, _, path = str(error).partition(" - at `$")
    keys = re.findall(r"\.([^.`]+)", re.sub(r"\[[^\]]*\]", "", path))  # [...]: in a list or table
    place = document.where(table, *keys)
    value: Any = given
    for key in keys:
        value = value[key]
    subject = f"{place}: [{table}] {'.'.join(keys)} = {shown(value)}"
    if reason.startswith("Invalid enum value"):
        types = {field.name: field.type for field in msgspec.structs.fields(kind)}
        allowed = choices(types[keys[0]])
        close = nearest(value, allowed) if isinstance(value, str) else ""
        return f"{subject}; allowed are {', '.join(allowed)}.{close}"
    expected = re.match(r"Expected `([^`]+)`(.*?)(, got .*)?$", reason)
    if expected is None:
        return f"{subject}: {reason}."
    words = [_WORDS.get(word, word) for word in expected[1].split(" | ") if word != "null"]
    limit = " that is not empty" if "length" in expected[2] else expected[2]
    inside = " inside" if "[" in path else ""
    return f"{subject}; allowed{inside} is {' or '.join(words)}{limit}."


def shown(value: object) -> str:
    """Return a value as the file has it, cut where it is long."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, dt.date | dt.time):
        text = value.isoformat()
    else:
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
