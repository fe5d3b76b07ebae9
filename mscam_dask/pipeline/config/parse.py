"""Tables of a TOML document as structs, with a message for every problem; names in them."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from mscam_dask.data.store.object_store import as_location
from mscam_dask.errors import ConfigurationError, holds_a_secret, redacted
from mscam_dask.pipeline.config.settings import BUILT_IN_SOURCES, File, extras_of
from mscam_dask.pipeline.config.toml_document import Document, Key
from mscam_dask.types.allowed import allowed_text, annotations_of, nearest, table_of

_KindT = TypeVar("_KindT", bound=msgspec.Struct)
Check = Callable[[Any], Iterable[tuple[Key, str]]]
"""Yields the keys in a table that conflict with others, and why."""
_WRONG = object()

_OPTIONS = ("execution", "cluster_options")
_MANIFEST = "custom_cluster_spec"  # a path in these options

# In these addresses the part before the @ is a container.
_CONTAINER = re.compile(r"\b((?:abfss?|wasbs?)://)[^\s/@:]+@")


def read_tables(
    document: Document,
    kind: type[_KindT],
    checks: Mapping[str, Check],
    elsewhere: Mapping[str, str] | None = None,
) -> _KindT:
    """Return the tables of a document as a struct with absolute paths; one error names every problem.

    Wrong keys are left out of the tables that `checks` get. `elsewhere` says where the setting of an unknown key is.
    """
    reader = _Reader(document, kind, checks, elsewhere or {})
    tables: _KindT = reader.table(document.tables, kind, ())
    reader.find_credentials(document.tables, ())
    refuse(reader.problems)
    return tables


def refuse(problems: Iterable[str]) -> None:
    """Raise an error of all problems, if there are any."""
    if lines := list(dict.fromkeys(problems)):
        raise ConfigurationError("\n".join(lines))


def misplaced(
    table: msgspec.Struct, kind: str, keys_of: Mapping[str, Collection[str]]
) -> Iterable[tuple[Key, str]]:
    """Yield the keys that are given and belong to other kinds of a table only."""
    for field in msgspec.structs.fields(table):
        owners = [name for name, keys in keys_of.items() if field.name in keys]
        if owners and kind not in owners and getattr(table, field.name) != field.default:
            yield (field.name,), f"is not for {kind!r}, only for {', '.join(owners)}. Remove it."


@dataclasses.dataclass
class _Reader:
    """Reads tables, and collects the problems; wrong values and tables that lack a key are left out."""

    document: Document
    kind: Any
    checks: Mapping[str, Check]
    elsewhere: Mapping[str, str]
    problems: list[str] = dataclasses.field(default_factory=list)

    def table(self, given: Mapping[str, Any], kind: Any, path: Key) -> Any:
        """Return the table at `path` as a struct or dataclass."""
        annotations = annotations_of(kind)
        values = {}
        for key, value in given.items():
            if key in annotations:
                values[key] = self._value(value, annotations[key], (*path, key))
            else:
                self._unknown(key, value, list(annotations), path)
        fields = () if dataclasses.is_dataclass(kind) else msgspec.structs.fields(kind)
        required = {field.name: field.type for field in fields if field.required}
        for key in required.keys() - given.keys():
            what = f"{key}: {allowed_text(required[key], '')}" if path else f"the table [{key}]."
            self._add(path, f"{_table_name(path)} needs {what}")
        values = {key: value for key, value in values.items() if value is not _WRONG}
        if required.keys() - values.keys():
            return _WRONG
        try:
            found = kind(**values)
        except ConfigurationError as error:
            return self._add(path, f"{_table_name(path)} {error}")
        if check := self.checks.get(".".join(path)):
            for inner, problem in check(found):
                self._add((*path, *inner), f"{_key_name((*path, *inner))} {problem}")
        return found

    def _value(self, value: Any, annotation: Any, path: Key) -> Any:
        if isinstance(value, dict):
            if (inner := table_of(annotation)) is not None:
                return self.table(value, inner, path)
            if get_origin(annotation) is dict:
                of_each = get_args(annotation)[1]
                return {
                    key: self._value(each, of_each, (*path, key)) for key, each in value.items()
                }
        try:
            found = self._absolute(
                msgspec.convert(value, annotation), extras_of(annotation).get("path"), path
            )
        except ConfigurationError as error:
            return self._add(path, f"{_key_name(path)}: {error}")
        except ValueError:
            allowed = allowed_text(annotation, value)
            return self._add(path, f"{_key_name(path)} = {shown(value)}; allowed is {allowed}")
        if path == _OPTIONS and _MANIFEST in found:
            found[_MANIFEST] = self._value(found[_MANIFEST], File, (*path, _MANIFEST))
        return found

    def _absolute(self, value: Any, role: str | None, path: Key) -> Any:
        """Make a value absolute if its role says that it is a path."""
        if isinstance(value, list):
            return [self._absolute(item, role, path) for item in value]
        if role is None or not isinstance(value, str):
            return value
        if "\0" in value:
            raise ValueError
        if role == "unless built in" and value in BUILT_IN_SOURCES:
            return value
        if "://" in value:
            if role == "always":
                raise ConfigurationError(
                    f"{shown(value)} is a URL. Give a path on a file system; [output] checkpoints and "
                    "[data] source may be URLs."
                )
            as_location(value)  # checks it
            return value
        absolute = self.document.absolute(value, *path)
        return absolute if role != "if it is one" or Path(absolute).is_file() else value

    def _unknown(self, key: str, value: Any, allowed: list[str], path: Key) -> None:
        found, names = f"key {key!r}", sorted(allowed)
        if not path:
            names = [f"[{name}]" for name in allowed]
            found = f"table [{key}]" if isinstance(value, dict) else found
        home = self.elsewhere.get(key) or next(_homes(self.kind, key), None)
        hint = f" It belongs in {home}." if home else nearest(key, allowed)
        self._add(
            (*path, key),
            f"{_table_name(path)} has no {found}.{hint} Allowed are {', '.join(names)}.",
        )

    def find_credentials(self, value: Any, path: Key) -> None:
        """Add a problem for each text that is a credential: run directories keep a copy of the file."""
        if isinstance(value, dict):
            for key, item in value.items():
                self.find_credentials(item, (*path, str(key)))
        elif isinstance(value, list):
            for item in value:
                self.find_credentials(item, path)
        elif isinstance(value, str):
            address = _CONTAINER.sub(r"\g<1>", value)
            name = path[-1] if path[:2] == _OPTIONS else ""
            if redacted(address) != address or holds_a_secret(name, "", {}):
                self._add(
                    path,
                    f"{'.'.join(path)} contains a credential, and pipeline files are copied into run "
                    "directories. Put it into the environment (AWS_SECRET_ACCESS_KEY, ...), or the "
                    "configuration file of Dask or its library.",
                )

    def _add(self, path: Key, problem: str) -> object:
        self.problems.append(f"{self.document.where(*path)}: {problem}")
        return _WRONG


def _table_name(path: Key) -> str:
    return f"[{'.'.join(path)}]" if path else "the file"


def _key_name(path: Key) -> str:
    """Name of a key with its table, or of a table."""
    return f"{_table_name(path[:-1])} {path[-1]}" if path[1:] else _table_name(path)


def _homes(kind: Any, key: str, path: Key = ()) -> Iterator[str]:
    """Yield the tables that have a key."""
    for name, annotation in annotations_of(kind).items():
        inner = table_of(annotation)
        if inner is not None:
            if key in annotations_of(inner):
                yield f"[{'.'.join((*path, name))}]"
            yield from _homes(inner, key, (*path, name))


def shown(value: object) -> str:
    """Return a value as in the file, truncated if it is long."""
    text = repr(value) if isinstance(value, str | list | tuple | dict) else str(value).lower()
    return text if len(text) <= 60 else f"{text[:57]}..."


_MAX_BYTES = 200  # leaves room for prefixes and suffixes within the usual 255
# A name that begins with a dot is that of a partial file; the last ones are devices on Windows.
_NO_NAME = re.compile(
    r"^$|^\.|[/\\:*?\"<>|\x00-\x1f\x7f]|[. ]$|^(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?$",
    re.IGNORECASE,
)


def check_name(name: str, what: str, remedy: str) -> None:
    """Refuse a name that cannot be that of a file on every system."""
    if _NO_NAME.search(name) or len(name.encode(errors="replace")) > _MAX_BYTES:
        raise ConfigurationError(
            f"{what} {shown(name)} is not usable; allowed is one plain name of at most {_MAX_BYTES} bytes, "
            rf'without / \ : * ? " < > |, a dot at an end, or the name of a device. {remedy}'
        )


def are_one_name(name: str, other: str) -> bool:
    """Return whether two names may be the same file on some system (case, Unicode form)."""
    name, other = (unicodedata.normalize("NFC", text).casefold() for text in (name, other))
    return name == other


def name_of_pipeline(path: str | Path) -> str:
    """Return the name of a pipeline file without its suffix, the prefix of its run directories."""
    name = Path(path).stem
    check_name(
        name, f"{path}: the pipeline's name", "Run directories are named after it: rename the file."
    )
    return name
