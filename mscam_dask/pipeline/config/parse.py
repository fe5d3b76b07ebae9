"""Tables of a file, also nested ones, checked with every problem in its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from mscam_dask.pipeline.config.errors import nearest, shown, type_problem
from mscam_dask.pipeline.config.toml_document import Document

__all__ = ["known_keys", "read_table", "sub_tables", "unknown_tables"]

_TableT = TypeVar("_TableT", bound=msgspec.Struct)

_Hint = Callable[[str, Sequence[str]], str]

_WHAT_IS_NEEDED = {"source": "a source: 'digits', 'mfeat', or the path of a file or store"}


def unknown_tables(document: Document, allowed: Sequence[str]) -> Iterable[str]:
    """Yield a problem for each top-level name that is no table of an experiment."""
    for name, value in document.tables.items():
        if name not in allowed:
            kind = f"table [{name}]" if isinstance(value, dict) else f"key {name!r}"
            yield (
                f"{document.where(name)}: there is no {kind} in an experiment."
                f"{nearest(name, allowed)} Allowed are the tables "
                f"{', '.join(f'[{table}]' for table in allowed)}."
            )


def sub_tables(document: Document, name: str, problems: list[str]) -> dict[str, dict[str, Any]]:
    """Return the tables [name.X] by X; what is no table becomes a problem."""
    given = document.tables.get(name, {})
    if not isinstance(given, dict):
        problems.append(
            f"{document.where(name)}: {name} = {shown(given)} where tables [{name}.NAME] are "
            "expected."
        )
        return {}
    tables = {}
    for key, value in given.items():
        if isinstance(value, dict):
            tables[key] = value
        else:
            problems.append(
                f"{document.where(name, key)}: [{name}] {key} = {shown(value)} where a table "
                f"[{name}.{key}] is expected."
            )
    return tables


def known_keys(
    document: Document,
    path: tuple[str, ...],
    allowed: Sequence[str],
    problems: list[str],
    hint: _Hint = nearest,
) -> dict[str, Any] | None:
    """Return what the table at `path` has of the keys it may have; the others become problems.

    `hint` says what is meant by one of these, given those that are allowed. Empty where there is no
    table; None, with the problem added, where something else is in its place.
    """
    given: Any = document.tables
    for part in path:
        given = given.get(part, {})
    title = ".".join(path)
    if not isinstance(given, dict):
        problems.append(
            f"{document.where(*path)}: {title} = {shown(given)} where the table [{title}] is "
            "expected."
        )
        return None
    problems.extend(
        f"{document.where(*path, key)}: [{title}] has no key {key!r}.{hint(key, allowed)} "
        f"Allowed are {', '.join(allowed)}."
        for key in given
        if key not in allowed
    )
    return {key: value for key, value in given.items() if key in allowed}


def read_table(
    document: Document,
    path: tuple[str, ...],
    kind: type[_TableT],
    problems: list[str],
    hint: _Hint = nearest,
) -> _TableT | None:
    """Read the table at `path` as `kind`; None, with the problems added, when it cannot be used.

    A table that is missing is an empty one: whether that will do is for `kind` to say. See `known_keys`.
    """
    fields = msgspec.structs.fields(kind)
    known = known_keys(document, path, [field.name for field in fields], problems, hint)
    if known is None:
        return None
    title = ".".join(path)
    missing = [field.name for field in fields if field.required and field.name not in known]
    if missing:
        needed = ", ".join(_WHAT_IS_NEEDED.get(name, name) for name in missing)
        problems.append(f"{document.where(*path)}: [{title}] needs {needed}.")
        return None
    try:
        return msgspec.convert(known, kind)
    except msgspec.ValidationError as error:
        problems.append(type_problem(_flat(document, path), title, known, error, kind))
        return None


def _flat(document: Document, path: tuple[str, ...]) -> Document:
    """The document as if the table at `path` were at the top, for places in messages."""
    title, depth = ".".join(path), len(path)

    def moved(places: Any) -> dict[tuple[str, ...], Any]:
        return {
            (title, *key[depth:]): place for key, place in places.items() if key[:depth] == path
        }

    return dataclasses.replace(
        document, lines=moved(document.lines), overrides=moved(document.overrides)
    )
