"""Tables of a TOML document as settings, with a message for every problem; names of files in them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.toml_document import Document

_TableT = TypeVar("_TableT", bound=msgspec.Struct)

_Hint = Callable[[str, Sequence[str]], str]

_REQUIRED = {"source": "a source: 'digits', 'mfeat', or the path of a file or store"}


_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return a suggestion of the closest allowed name, or an empty text."""
    close = difflib.get_close_matches(name.lower(), list(allowed), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown_tables(document: Document, allowed: Sequence[str]) -> Iterable[str]:
    """Yield a problem for each top-level name that is not a table of an experiment."""
    for name, value in document.tables.items():
        if name not in allowed:
            kind = f"table [{name}]" if isinstance(value, dict) else f"key {name!r}"
            yield (
                f"{document.where(name)}: an experiment has no {kind}."
                f"{nearest(name, allowed)} Allowed are the tables "
                f"{', '.join(f'[{table}]' for table in allowed)}."
            )


def sub_tables(document: Document, name: str, problems: list[str]) -> dict[str, dict[str, Any]]:
    """Return the tables [name.X] by X, and add a problem for other values."""
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
    """Return the allowed keys of the table at `path`, and add a problem for the others.

    `hint` returns a suggestion for a key, given the allowed ones. The result is empty if there is no
    table, and None, with a problem, if there is another value in its place.
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
    """Read the table at `path` as `kind`; None, with problems, if it is invalid.

    A missing table is empty, which is valid if `kind` has no required field. See `known_keys`.
    """
    fields = msgspec.structs.fields(kind)
    known = known_keys(document, path, [field.name for field in fields], problems, hint)
    if known is None:
        return None
    title = ".".join(path)
    missing = [field.name for field in fields if field.required and field.name not in known]
    if missing:
        needed = ", ".join(_REQUIRED.get(name, name) for name in missing)
        problems.append(f"{document.where(*path)}: [{title}] needs {needed}.")
        return None
    try:
        return msgspec.convert(known, kind)
    except msgspec.ValidationError as error:
        problems.append(type_problem(_flat(document, path), title, known, error, kind))
        return None


def absolute_paths(document: Document, name: str, table: _TableT, keys: Sequence[str]) -> _TableT:
    """Make the paths at some keys of the table [name] absolute; "a.b" is key b of the mapping a."""
    changes: dict[str, Any] = {}
    for key, _, inner in (path.partition(".") for path in keys):
        value = getattr(table, key)
        if inner and isinstance((value or {}).get(inner), str):
            changes[key] = {**value, inner: document.absolute(value[inner], name, key, inner)}
        elif not inner and value is not None:
            changes[key] = document.absolute(value, name, key)
    return msgspec.structs.replace(table, **changes)


def _flat(document: Document, path: tuple[str, ...]) -> Document:
    """Document with the table at `path` at the top level, for places in messages."""
    title, depth = ".".join(path), len(path)

    def moved(places: Any) -> dict[tuple[str, ...], Any]:
        return {
            (title, *key[depth:]): place for key, place in places.items() if key[:depth] == path
        }

    return dataclasses.replace(
        document, lines=moved(document.lines), overrides=moved(document.overrides)
    )


def choices(annotation: Any) -> tuple[str, ...]:
    """Return the distinct texts that a type allows, also within other types.

    Examples
    --------
    >>> choices(list[Literal["rows", "columns"]] | None)
    ('rows', 'columns')
    """
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    texts = (text for part in get_args(annotation) for text in choices(part))
    return tuple(dict.fromkeys(texts))


def type_problem(
    document: Document,
    table: str,
    given: Mapping[str, Any],
    error: msgspec.ValidationError,
    kind: type[msgspec.Struct],
) -> str:
    """Convert an error of msgspec to a message with place, key and value."""
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
    words = [_TYPE_NAMES.get(word, word) for word in expected[1].split(" | ") if word != "null"]
    limit = " that is not empty" if "length" in expected[2] else expected[2]
    inside = " inside" if "[" in path else ""
    return f"{subject}; allowed{inside} is {' or '.join(words)}{limit}."


def shown(value: object) -> str:
    """Return a value as in the file, truncated if it is long."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, dt.date | dt.time):
        text = value.isoformat()
    else:
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse_memory(amount: int | str, name: str) -> int:
    """Return an amount of memory in bytes."""
    if isinstance(amount, int):
        return amount
    from dask.utils import parse_bytes

    try:
        return int(parse_bytes(amount))
    except ValueError as error:
        raise ConfigurationError(
            f"{name} = {amount!r} is not an amount of memory. Give a number of bytes, or a text such "
            "as '4 GiB'."
        ) from error


# Leaves room for prefixes and suffixes within the usual 255 bytes.
_MAX_BYTES = 200
_FORBIDDEN = re.compile(r"[/\\:*?\"<>|\x00-\x1f\x7f]")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def name_problem(name: str) -> str | None:
    """Return why a name is not valid and what is allowed; None if it is valid.

    Names that begin with a dot are reserved for partial files.

    Examples
    --------
    >>> name_problem("MSRC-v1 (5 views)") is None
    True
    >>> name_problem("../elsewhere")
    "begins with '.'; allowed is one plain name, without / or other parts of a path"
    """
    forbidden = _FORBIDDEN.search(name)
    if not name:
        reason = "is empty"
    elif name.startswith("."):
        reason = "begins with '.'"
    elif forbidden is not None:
        reason = f"has {forbidden[0]!r}"
    elif name[-1] in ". ":
        reason = f"ends with {name[-1]!r}"
    elif _DEVICE.fullmatch(name):
        reason = "is the name of a device on Windows"
    elif (n_bytes := len(name.encode(errors="replace"))) > _MAX_BYTES:
        reason = f"has {n_bytes} bytes, and names have at most {_MAX_BYTES}"
    else:
        return None
    return f"{reason}; allowed is one plain name, without / or other parts of a path"


def are_one_name(name: str, other: str) -> bool:
    """Return whether two names may be the same file on some system (case, Unicode form).

    Examples
    --------
    >>> are_one_name("MSRC", "msrc")
    True
    >>> are_one_name("u\u0308", "\u00dc"), are_one_name("u", "\u00fc")
    (True, False)
    """
    name, other = (unicodedata.normalize("NFC", text).casefold() for text in (name, other))
    return name == other


def check_name(name: str, what: str, remedy: str) -> None:
    """Refuse a name that is not valid."""
    problem = name_problem(name)
    if problem is not None:
        raise ConfigurationError(f"{what} {shown(name)} {problem}. {remedy}")


def name_of_pipeline(path: str | Path) -> str:
    """Return the name of a pipeline file without its suffix, the prefix of its run directories."""
    name = Path(path).stem
    check_name(
        name, f"{path}: the pipeline's name", "Run directories are named after it: rename the file."
    )
    return name
