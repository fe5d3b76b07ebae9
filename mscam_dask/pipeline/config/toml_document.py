"""TOML documents: tables with the line of each key, overrides by options and environment, output.

A file that is too large, is not text or TOML, or repeats a key is refused here, and so is an
override that is not `table.key=value`.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from mscam_dask.errors import ConfigurationError

MAX_BYTES = 64 * 2**10
"""Maximum size of a file."""

ENVIRONMENT_PREFIX = "MSCAM_"
_BETWEEN = "__"

_MAX_LINE = 4096
_MAX_DOTS = 64  # in a line: tomllib takes quadratic time in the number of parts of one key

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_HEADER = re.compile(rf"\s*\[\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]")
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)\s*$")
_BARE = re.compile(r"(?:[^\W\d]|[./~])[^\s\"'\[\]{}=#,]*")


@dataclass(frozen=True)
class Override:
    """Value that replaces the value of a file."""

    key: tuple[str, ...]
    """Table and key."""
    value: Any
    """None removes the key."""
    origin: str
    """Option or variable of the value, for messages: "--workers 4"."""


@dataclass(frozen=True)
class Document:
    """Tables of a pipeline file after overrides."""

    path: Path
    """Path as the user gave it, for messages."""
    tables: dict[str, Any]
    lines: Mapping[tuple[str, ...], int]
    """Line (from 1) of tables and keys, as far as known."""
    overrides: Mapping[tuple[str, ...], str]
    """Origin of each key that was overridden."""

    def overridden(self, overrides: Sequence[Override]) -> Document:
        """Return the document with overrides applied, later ones winning."""
        tables = copy.deepcopy(self.tables)
        for override in overrides:
            _apply(tables, override)
        origins = {override.key: override.origin for override in overrides}
        return dataclasses.replace(self, tables=tables, overrides={**self.overrides, **origins})

    def where(self, *key: str) -> str:
        """Return the place of a key, or of the nearest table around it, for a message."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.overrides:
                return self.overrides[key[:length]]
            if key[:length] in self.lines:
                return f"{self.path}, line {self.lines[key[:length]]}"
            inside = (
                origin for name, origin in self.overrides.items() if name[:length] == key[:length]
            )
            if key[:length] == key and (only := next(inside, None)) is not None:
                return only  # a table that only an override names
        return str(self.path)

    def base(self, *key: str) -> Path:
        """Return the directory of relative paths of a key.

        Paths in a file are relative to the file, and paths on the command line to the working
        directory.
        """
        if any(key[:length] in self.overrides for length in range(1, len(key) + 1)):
            return Path.cwd()
        return self.path.absolute().parent

    def absolute(self, value: str, *key: str) -> str:
        """Return the absolute path of a key; a URL is returned unchanged."""
        if "://" in value:
            return value
        try:
            return str(self.base(*key) / Path(value).expanduser())
        except RuntimeError as error:
            raise ConfigurationError(
                f"{self.where(*key)}: {value!r} begins with {Path(value).parts[0]}, which is not a "
                "home directory here. Give the absolute path."
            ) from error

    def texts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield every text in the tables with its key."""
        return _texts(self.tables, ())


def _texts(value: object, key: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, (*key, str(name)))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)


COMMAND_LINE = Document(path=Path("the command line"), tables={}, lines={}, overrides={})
"""Document without a file, for overrides only."""


def read_document(path: str | Path) -> Document:
    """Read a TOML file of at most 64 KiB of UTF-8 text."""
    file = Path(path)
    text = _read_text(file)
    tables = _parse(text, str(file))
    return Document(path=file, tables=tables, lines=_places(text), overrides={})


def parse_override(text: str) -> Override:
    """Parse "table.key=value" with a value in TOML; a plain word needs no quotes.

    Examples
    --------
    >>> parse_override("cluster.scale=unit").value, parse_override("cluster.alpha=0.5").value
    ('unit', 0.5)
    """
    left, equals, right = text.partition("=")
    key = _key_path(left)
    origin = f"--set {text}"
    if not equals or key is None or len(key) < 2:
        raise ConfigurationError(
            f"{origin} is not of the form table.key=value. Example: --set cluster.n_clusters=10."
        )
    try:
        parsed = _parse(f"value = {right}", origin)
    except ConfigurationError as error:
        if len(right) > _MAX_LINE or not _BARE.fullmatch(right.strip()):
            raise ConfigurationError(
                f"{origin}: {right!r} is not a TOML value. Examples: 10, 0.5, true, word, "
                '\'"some text"\', \'["a", "b"]\'.'
            ) from error
        return Override(key, right.strip(), origin)
    if set(parsed) != {"value"}:
        raise ConfigurationError(f"{origin} has more than one value. Repeat --set for each.")
    return Override(key, parsed["value"], origin)


def _read_text(file: Path) -> str:
    if file.is_dir():
        raise ConfigurationError(f"{file} is a directory. Give a pipeline file (*.toml).")
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"There is no pipeline file {file}. Check the path (relative to {Path.cwd()})."
        ) from error
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}.") from error
    if len(content) > MAX_BYTES:
        raise ConfigurationError(
            f"{file} is larger than {MAX_BYTES >> 10} KiB, the limit of a pipeline file. Give data by "
            "path ([data] source = ...)."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{file} is not UTF-8 text (byte {error.start}), as TOML requires. Save it as UTF-8."
        ) from error
    return text.replace("\r\n", "\n")


def _parse(text: str, where: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > _MAX_LINE:
            raise ConfigurationError(
                f"{where}, line {number} has {len(line)} characters, more than {_MAX_LINE}. Break "
                "a long list into lines."
            )
        if line.count(".") > _MAX_DOTS:
            raise ConfigurationError(
                f"{where}, line {number} has {line.count('.')} dots, more than {_MAX_DOTS}. Break "
                "a long list into lines."
            )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(_explained(str(error), where)) from error
    except RecursionError as error:
        raise ConfigurationError(
            f"{where} nests values too deeply. Use tables of plain values."
        ) from error


def _explained(reason: str, where: str) -> str:
    """Message of a TOML error, with its place and a remedy."""
    place = _PLACE.search(reason)
    if place is not None and place[1]:
        where = f"{where}, line {place[1]}, column {place[2]}"
    reason = reason[: place.start()] if place is not None else reason
    if "overwrite" in reason or "twice" in reason or "Duplicate" in reason:
        return f"{where}: {reason}. Each key and table may occur once: keep one of them."
    return f"{where} is not valid TOML: {reason}. Text needs quotes, lists square brackets."


def _key_path(text: str) -> tuple[str, ...] | None:
    if len(text) > _MAX_LINE or not _KEY.fullmatch(f"{text}="):
        return None
    return tuple(part.strip("\"'") for part in re.findall(_PART, text))


def _apply(tables: dict[str, Any], override: Override) -> None:
    table = tables
    for depth, part in enumerate(override.key[:-1], start=1):
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigurationError(
                f"{override.origin}: {'.'.join(override.key[:depth])} is {inner!r}, not a table. Set "
                "that key itself."
            )
        table = inner
    if override.value is None:
        table.pop(override.key[-1], None)
    else:
        table[override.key[-1]] = override.value


def _places(text: str) -> dict[tuple[str, ...], int]:
    """Line of tables and keys, as far as a single pass finds them."""
    places: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    in_text = False
    for number, line in enumerate(text.split("\n"), start=1):
        if not in_text:
            header, key = _HEADER.match(line), _KEY.match(line)
            if header is not None:
                table = _key_path(header[1]) or ()
                places.setdefault(table, number)
            elif key is not None:
                places.setdefault((*table, *(_key_path(key[1]) or ())), number)
        if (line.count('"""') + line.count("'''")) % 2:
            in_text = not in_text
    return places


def environment_overrides(environment: Mapping[str, str]) -> list[Override]:
    """Return the overrides of environment variables MSCAM_<TABLE>__<KEY>=value.

    They override the file, and options of the command line override them. A value that is not
    TOML is a text.

    Examples
    --------
    >>> overrides = environment_overrides({"MSCAM_CLUSTER__N_CLUSTERS": "12", "HOME": "/root"})
    >>> [(override.key, override.value) for override in overrides]
    [(('cluster', 'n_clusters'), 12)]
    """
    overrides = []
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX) or _BETWEEN not in name:
            continue
        key = tuple(part.lower() for part in name.removeprefix(ENVIRONMENT_PREFIX).split(_BETWEEN))
        if len(key) < 2 or not all(key):
            raise ConfigurationError(
                f"the environment variable {name} does not name a table and a key. Use "
                f"{ENVIRONMENT_PREFIX}TABLE{_BETWEEN}KEY=value, for example MSCAM_CLUSTER__N_CLUSTERS=10."
            )
        value = _environment_value(environment[name])
        overrides.append(Override(key, value, f"{name}={environment[name]} (environment)"))
    return overrides


def _environment_value(text: str) -> object:
    """Value in TOML, or the text itself: shells and unit files have their own quotes."""
    try:
        return parse_override(f"table.key={text}").value
    except ConfigurationError:
        return text


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Format tables as TOML; keys that are None are omitted.

    Examples
    --------
    >>> print(toml_text({"data": {"source": "digits", "header": True, "path": None}}))
    [data]
    source = "digits"
    header = true
    <BLANKLINE>
    """
    return tomli_w.dumps(
        {
            name: {key: value for key, value in table.items() if value is not None}
            for name, table in tables.items()
        }
    )
