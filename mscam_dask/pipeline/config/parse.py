"""Tables of a TOML document as settings, with a message for every problem; names of files in them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import difflib
import re
import types
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.toml_document import Document

_TableT = TypeVar("_TableT")
_StructT = TypeVar("_StructT", bound=msgspec.Struct)
_Hint = Callable[[str, Sequence[str]], str]

_REQUIRED = {
    "source": "a source: 'digits', 'mfeat', or the path of a file or store",
    "n_clusters": 'n_clusters: the number of clusters, or "auto"',
}


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return a suggestion of the closest allowed name, or an empty text."""
    close = difflib.get_close_matches(name.lower(), list(allowed), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown_tables(
    document: Document,
    allowed: Sequence[str],
    kind: str = "an experiment",
    hint: _Hint = nearest,
) -> Iterable[str]:
    """Yield a problem for each top-level name that is not a table of a kind of file."""
    for name, value in document.tables.items():
        if name not in allowed:
            found = f"table [{name}]" if isinstance(value, dict) else f"key {name!r}"
            yield (
                f"{document.where(name)}: {kind} has no {found}.{hint(name, allowed)} Allowed are the tables "
                f"{', '.join(f'[{table}]' for table in allowed)}."
            )


def sub_tables(document: Document, name: str, problems: list[str]) -> dict[str, dict[str, Any]]:
    """Return the tables [name.X] by X, and add a problem for other values."""
    given = _table(document, (name,), problems, f"tables [{name}.NAME] are") or {}
    for key, value in given.items():
        if not isinstance(value, dict):
            problems.append(
                f"{document.where(name, key)}: [{name}] {key} = {shown(value)} where a table "
                f"[{name}.{key}] is expected."
            )
    return {key: value for key, value in given.items() if isinstance(value, dict)}


def _table(
    document: Document, path: tuple[str, ...], problems: list[str], expected: str = ""
) -> dict[str, Any] | None:
    """Return the table at `path`, empty where there is none; None, with a problem, for another value."""
    given: Any = document.tables
    for part in path:
        given = given.get(part, {})
    if isinstance(given, dict):
        return given
    title = ".".join(path)
    problems.append(
        f"{document.where(*path)}: {title} = {shown(given)} where "
        f"{expected or f'the table [{title}] is'} expected."
    )
    return None


def read_table(
    document: Document,
    path: tuple[str, ...],
    kind: type[_TableT],
    problems: list[str],
    hint: _Hint = nearest,
) -> _TableT | None:
    """Read the table at `path` as a struct or dataclass; None, with a problem for each wrong key.

    A missing table is empty. `hint` returns a suggestion for an unknown key, given the known ones.
    """
    given = _table(document, path, problems)
    if given is None:
        return None
    title = ".".join(path)
    hints = get_type_hints(kind, include_extras=True)
    required = _required(kind)
    values: dict[str, Any] = {}
    wrong = False
    for key, value in given.items():
        if key not in hints:
            problems.append(
                f"{document.where(*path, key)}: [{title}] has no key {key!r}.{hint(key, [*hints])} "
                f"Allowed are {', '.join(sorted(hints))}."
            )
            continue
        inner = _inner_table(hints[key])
        if inner is not None and isinstance(value, dict):
            values[key] = read_table(document, (*path, key), inner, problems)
            wrong |= values[key] is None
            continue
        try:
            values[key] = msgspec.convert(value, hints[key])
            if not required:
                kind(**{key: values[key]})  # refuses what is out of range
        except (msgspec.ValidationError, ConfigurationError) as error:
            wrong = True
            problems.append(
                f"{document.where(*path, key)}: [{title}] "
                + (
                    str(error)
                    if isinstance(error, ConfigurationError)
                    else f"{key} = {shown(value)}; allowed is {_allowed_text(hints[key], value)}"
                )
            )
    missing = [name for name in required if name not in given]
    if missing:
        needed = ", ".join(_REQUIRED.get(name, name) for name in missing)
        problems.append(f"{document.where(*path)}: [{title}] needs {needed}.")
    return None if wrong or missing else kind(**values)


def _required(kind: Any) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return []
    return [field.name for field in msgspec.structs.fields(kind) if field.required]


def _inner_table(annotation: Any) -> Any:
    """Return the class of the table that an annotation means; None without one."""
    if isinstance(annotation, type) and (
        issubclass(annotation, msgspec.Struct) or dataclasses.is_dataclass(annotation)
    ):
        return annotation
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        return next(filter(None, map(_inner_table, get_args(annotation))), None)
    return None


def _allowed_text(annotation: Any, value: object) -> str:
    text = allowed_values(annotation)
    close = nearest(value, re.findall('`"([^"]+)"`', text)) if isinstance(value, str) else ""
    return f"{text.replace('`', '').replace('≥', '>=').replace('≤', '<=')}.{close}"


def metas_of(annotation: Any) -> Iterator[Meta]:
    """Yield the `Meta` of a type, the outermost first."""
    if get_origin(annotation) is Annotated:
        base, *metas = get_args(annotation)
        yield from reversed([meta for meta in metas if isinstance(meta, Meta)])
        yield from metas_of(base)


def allowed_values(annotation: Any) -> str:
    """Return the values that a type allows, in Markdown: its title, else what follows from it."""
    metas = list(metas_of(annotation))
    if (title := next((meta.title for meta in metas if meta.title), None)) is not None:
        return title
    base = get_args(annotation)[0] if metas else annotation
    if base in (bool, str):
        return "`true`, `false`" if base is bool else "a text"
    if base in (int, float):
        return _range("a whole number" if base is int else "a number", metas)
    if get_origin(base) is Literal:
        return ", ".join(f'`"{text}"`' for text in get_args(base))
    if get_origin(base) in (Union, types.UnionType):
        parts = [part for part in get_args(base) if part is not type(None)]
        return " or ".join(allowed_values(part) for part in parts)
    if _inner_table(base) is not None:
        return "a table"
    raise TypeError(f"{annotation} does not say what it allows: give its Meta a title.")


def _range(noun: str, metas: list[Meta]) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = {
        name: value
        for meta in metas
        for name in signs
        if (value := getattr(meta, name)) is not None
    }
    if bounds.keys() == {"ge", "le"}:
        return f"{noun} from {bounds['ge']} to {bounds['le']}"
    return " ".join([noun, *(f"{signs[name]} {value}" for name, value in bounds.items())])


def absolute_paths(document: Document, name: str, table: _StructT, keys: Sequence[str]) -> _StructT:
    """Make the paths at some keys of the table [name] absolute; "a.b" is key b of the mapping a."""
    changes: dict[str, Any] = {}
    for key, _, inner in (path.partition(".") for path in keys):
        value = getattr(table, key)
        if inner and isinstance((value or {}).get(inner), str):
            changes[key] = {**value, inner: document.absolute(value[inner], name, key, inner)}
        elif not inner and value is not None:
            changes[key] = document.absolute(value, name, key)
    return msgspec.structs.replace(table, **changes)


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
