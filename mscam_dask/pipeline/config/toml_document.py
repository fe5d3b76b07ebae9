"""TOML documents: tables with the place of each key, overrides by options and environment, output."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import tomli_w

from mscam_dask.errors import ConfigurationError

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


def environment_overrides(environment: Mapping[str, str]) -> list[Override]:
    """Return the overrides of variables MSCAM_<TABLE>__<KEY>=value, in TOML or as a text."""
    overrides = []
    for name, text in sorted(environment.items()):
        if not name.startswith("MSCAM_") or "__" not in name:
            continue
        key = tuple(name.removeprefix("MSCAM_").lower().split("__"))
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
