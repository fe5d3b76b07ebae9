"""TOML documents: the place of each key, overrides, tables as structs with a message for every problem, names of files."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
import tomllib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec
import tomli_w

from mscam_dask.data.store.object_store import as_location
from mscam_dask.errors import ConfigurationError, holds_a_secret, redacted
from mscam_dask.pipeline.settings import BUILT_IN_SOURCES, File, PipelineTables, extras_of
from mscam_dask.types.allowed import allowed_text, annotations_of, nearest, table_of

MAX_BYTES = 64 * 2**10
"""Maximum size of a file."""

# Keys of [execution] that say where the tasks run, and of `mscam:` that a fit reads itself.
_PLACES = {"cluster", "scheduler", "scheduler_file", "in_process"}
_OF_FITS = ("workers_timeout", "lost_worker_timeout")

_MAX_LINE = 4096
_MAX_DOTS = 64  # in a line: tomllib takes quadratic time in the number of parts of one key

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]")
_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)\s*$")
_BARE = re.compile(r"(?:[^\W\d]|[./~])[^\s\"'\[\]{}=#,]*")

Key = tuple[str, ...]


class Override(NamedTuple):
    """Value that replaces the value of a file."""

    key: Key  # table and key
    value: Any  # None removes the key
    origin: str  # option or variable of the value, for messages: "--workers 4"


@dataclass(frozen=True)
class Document:
    """Tables of a pipeline file after overrides."""

    path: Path  # as the user gave it, for messages
    tables: dict[str, Any]
    places: Mapping[Key, str]  # line or option of tables and keys, for messages, as far as known
    overrides: frozenset[Key] = frozenset()

    def overridden(self, overrides: Sequence[Override]) -> Document:
        """Return the document with overrides applied, later ones winning."""
        tables, places = copy.deepcopy(self.tables), dict(self.places)
        for key, value, origin in overrides:
            table = tables
            for length in range(1, len(key)):
                table = table.setdefault(key[length - 1], {})
                if not isinstance(table, dict):
                    raise ConfigurationError(
                        f"{origin}: {'.'.join(key[:length])} is {table!r}, not a table. Set that key itself."
                    )
                places.setdefault(key[:length], origin)
            table[key[-1]] = value
            if value is None:
                del table[key[-1]]
            places[key] = origin
        keys = self.overrides | {override.key for override in overrides}
        return dataclasses.replace(self, tables=tables, places=places, overrides=keys)

    def where(self, *key: str) -> str:
        """Return the place of a key, or of the nearest table around it, for a message."""
        while key and key not in self.places:
            key = key[:-1]
        return self.places.get(key, str(self.path))

    def absolute(self, value: str, *key: str) -> str:
        """Return the absolute path of a key; a URL is returned unchanged.

        Paths in a file are relative to the file, and paths of options to the working directory.
        """
        if "://" in value:
            return value
        is_option = any(key[:length] in self.overrides for length in range(1, len(key) + 1))
        base = Path.cwd() if is_option else self.path.absolute().parent
        try:
            return str(base / Path(value).expanduser())
        except RuntimeError as error:
            raise ConfigurationError(
                f"{value!r} begins with {Path(value).parts[0]}, which is not a "
                "home directory here. Give the absolute path."
            ) from error


COMMAND_LINE = Document(path=Path("the command line"), tables={}, places={})
"""Document without a file, for overrides only."""


def read_document(path: str | Path) -> Document:
    """Read a TOML file of at most 64 KiB of UTF-8 text."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{file} cannot be read: {error.strerror or error}. Give a pipeline file (*.toml); a relative "
            f"path starts at {Path.cwd()}."
        ) from error
    if len(content) > MAX_BYTES:
        raise ConfigurationError(
            f"{file} is larger than {MAX_BYTES >> 10} KiB, the limit of a pipeline file. Give data by "
            "path ([data] source = ...)."
        )
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{file} is not UTF-8 text (byte {error.start}), as TOML requires. Save it as UTF-8."
        ) from error
    tables = _parse(text, str(file))
    places = {key: f"{file}, line {number}" for key, number in _lines(text).items()}
    return Document(path=file, tables=tables, places=places)


def parse_override(text: str, origin: str | None = None) -> Override:
    """Parse "table.key=value" with a value in TOML; a plain word needs no quotes."""
    left, _, right = text.partition("=")
    key, origin = _key_of(left), origin or f"--set {text}"
    if len(key) < 2 or not right:
        raise ConfigurationError(
            f"{origin} is not of the form --set TABLE.KEY=VALUE or --cluster-option KEY=VALUE. Example: "
            "--set cluster.n_clusters=10."
        )
    return Override(key, _value(right, origin), origin)


def _value(text: str, origin: str) -> Any:
    try:
        parsed = _parse(f"value = {text}", origin)
    except ConfigurationError:
        if _BARE.fullmatch(text.strip()):
            return text.strip()
        raise
    if parsed.keys() != {"value"}:
        raise ConfigurationError(f"{origin} has more than one value. Repeat --set for each.")
    return parsed["value"]


def _parse(text: str, where: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > _MAX_LINE or line.count(".") > _MAX_DOTS:
            raise ConfigurationError(
                f"{where}, line {number} has {len(line)} characters and {line.count('.')} dots; allowed are "
                f"{_MAX_LINE} and {_MAX_DOTS}. Break a long list into lines."
            )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place, reason = _PLACE.search(str(error)), _PLACE.sub("", str(error))
        if place is not None and place[1]:
            where = f"{where}, line {place[1]}, column {place[2]}"
        raise ConfigurationError(
            f"{where} is not valid TOML: {reason}. Text needs quotes, lists square brackets, and each key "
            "and table occurs once."
        ) from error
    except RecursionError as error:
        raise ConfigurationError(
            f"{where} nests values too deeply. Use tables of plain values."
        ) from error


def _key_of(text: str) -> Key:
    """Parts of a key in TOML; empty for another text."""
    if len(text) > _MAX_LINE or text.count(".") > _MAX_DOTS:
        return ()
    value: Any = {}
    with contextlib.suppress(tomllib.TOMLDecodeError):
        value = tomllib.loads(f"{text} = 0")
    parts = []
    while isinstance(value, dict) and value:
        part, value = next(iter(value.items()))
        parts.append(part)
    return tuple(parts)


def _lines(text: str) -> dict[Key, int]:
    """Line (from 1) of tables and keys, as far as a single pass finds them."""
    lines: dict[Key, int] = {}
    table: Key = ()
    in_text = False
    for number, line in enumerate(text.split("\n"), start=1):
        if not in_text and (header := _HEADER.match(line)):
            table = _key_of(header[1])
            lines.setdefault(table, number)
        elif not in_text and "=" in line and (key := _key_of(line.partition("=")[0])):
            lines.setdefault((*table, *key), number)
        in_text ^= (line.count('"""') + line.count("'''")) % 2 == 1
    return lines


def environment_overrides(
    environment: Mapping[str, str], kind: type[msgspec.Struct] = PipelineTables
) -> list[Override]:
    """Return the overrides of variables MSCAM_<TABLE>__<KEY>=value, in TOML or as a text, for tables of a kind."""
    overrides, tables = [], annotations_of(kind)
    for name, text in sorted(environment.items()):
        if not name.startswith("MSCAM_"):
            continue
        key = tuple(name.removeprefix("MSCAM_").lower().split("__"))
        if "__" not in name:
            table, _, setting = key[0].partition("_")
            known = table_of(tables[table]) if table in tables else None
            if known is not None and setting in annotations_of(known):
                raise ConfigurationError(
                    f"the environment variable {name} has one underscore between table and key; two are needed. "
                    f"Use MSCAM_{table.upper()}__{setting.upper()}."
                )
            continue
        if len(key) < 2 or not all(key):
            raise ConfigurationError(
                f"the environment variable {name} does not name a table and a key. Use "
                "MSCAM_TABLE__KEY=value, for example MSCAM_CLUSTER__N_CLUSTERS=10."
            )
        value: Any = text
        with contextlib.suppress(ConfigurationError):  # shells and unit files have their own quotes
            value = _value(text, name)
        overrides.append(Override(key, value, f"{name}={text} (environment)"))
    return overrides


def dask_overrides(document: Document) -> list[Override]:
    """Return the defaults of [execution] in Dask's configuration, `mscam:`, with dashes in the keys.

    There are none if the document says where its tasks run.
    """
    import dask.config

    given = document.tables.get("execution", {})
    if not isinstance(given, dict) or given.keys() & _PLACES:
        return []
    configured = msgspec.to_builtins(dask.config.get("mscam", None) or {})
    named = {str(key).replace("-", "_"): value for key, value in configured.items()}
    return [
        Override(("execution", key), value, f"Dask's configuration, mscam.{key.replace('_', '-')}")
        for key, value in named.items()
        if key not in given and key not in _OF_FITS
    ]


def toml_text(tables: Mapping[str, Any]) -> str:
    """Format tables as TOML; keys that are None are omitted."""

    def known(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {key: known(item) for key, item in value.items() if item is not None}

    return tomli_w.dumps(known(tables))


# tables as structs -------------------------------------------------------------------------------


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


# names of files ----------------------------------------------------------------------------------


_MAX_NAME_BYTES = 200  # leaves room for prefixes and suffixes within the usual 255
# A name that begins with a dot is that of a partial file; the last ones are devices on Windows.
_NO_NAME = re.compile(
    r"^$|^\.|[/\\:*?\"<>|\x00-\x1f\x7f]|[. ]$|^(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?$",
    re.IGNORECASE,
)


def check_name(name: str, what: str, remedy: str) -> None:
    """Refuse a name that cannot be that of a file on every system."""
    if _NO_NAME.search(name) or len(name.encode(errors="replace")) > _MAX_NAME_BYTES:
        raise ConfigurationError(
            f"{what} {shown(name)} is not usable; allowed is one plain name of at most {_MAX_NAME_BYTES} bytes, "
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
