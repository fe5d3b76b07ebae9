"""A TOML file as tables of plain values that remember where they were written.

What is refused here is refused before any table means anything: a file that is too large, not
text, not TOML, or says a thing twice; an override that is no `table.key=value`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mscam_dask.errors import ConfigurationError

__all__ = ["MAX_BYTES", "Document", "Override", "document_of", "parse_override", "read_document"]

MAX_BYTES = 64 * 2**10
"""Largest file that is read; a pipeline is a page of text."""

_MAX_LINE = 4096
_MAX_DOTS = 64  # in a line: tomllib takes quadratic time in the number of parts of one key

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_HEADER = re.compile(rf"\s*\[\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]")
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)\s*$")
_BARE = re.compile(r"(?:[^\W\d]|[./~])[^\s\"'\[\]{}=#,]*")


@dataclass(frozen=True)
class Override:
    """A value given on the command line in place of the file's.

    Attributes
    ----------
    key
        Table and key.
    value
        None takes the key out of the file.
    said
        How it was given, for messages: "--workers 4".
    """

    key: tuple[str, ...]
    value: Any
    said: str


@dataclass(frozen=True)
class Document:
    """The tables of a pipeline file, with overrides applied.

    Attributes
    ----------
    path
        As the user named it, for messages.
    tables
        What the file says.
    lines
        Line (from 1) of every table and key that could be placed.
    overrides
        Keys that came from the command line, with how they were given.
    """

    path: Path
    tables: dict[str, Any]
    lines: Mapping[tuple[str, ...], int]
    overrides: Mapping[tuple[str, ...], str]

    def where(self, *key: str) -> str:
        """Return the place of a key, or of the nearest table around it, for a message."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.overrides:
                return self.overrides[key[:length]]
            if key[:length] in self.lines:
                return f"{self.path}, line {self.lines[key[:length]]}"
            inside = (
                said for name, said in self.overrides.items() if name[:length] == key[:length]
            )
            if key[:length] == key and (only := next(inside, None)) is not None:
                return only  # a table that an override alone names
        return str(self.path)

    def base(self, *key: str) -> Path:
        """Return the directory that relative paths of a key start from.

        Paths written in a file are relative to the file, paths typed on the command line to
        the working directory.
        """
        if any(key[:length] in self.overrides for length in range(1, len(key) + 1)):
            return Path.cwd()
        return self.path.absolute().parent

    def absolute(self, value: str, *key: str) -> str:
        """Return the path that a key has, absolute; the URL of a source as it is.

        Raises
        ------
        ConfigurationError
            When it begins with the home directory of somebody who has none.
        """
        if "://" in value:
            return value
        try:
            return str(self.base(*key) / Path(value).expanduser())
        except RuntimeError as error:
            raise ConfigurationError(
                f"{self.where(*key)}: {value!r} begins with {Path(value).parts[0]}, which stands for "
                "no home directory here. Give the whole path."
            ) from error

    def texts(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield every text in the tables, with the key it stands under."""
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


def read_document(path: str | Path, overrides: Sequence[Override] = ()) -> Document:
    """Read a TOML file and apply overrides to it, later ones winning.

    Parameters
    ----------
    path
        The file, at most 64 KiB of UTF-8 text.
    overrides
        From `parse_override`, or from options of the command line.

    Returns
    -------
    Document

    Raises
    ------
    ConfigurationError
        When the file cannot be read, is too large, is not TOML or repeats a key, or an
        override does not fit its tables.
    """
    file = Path(path)
    text = _read_text(file)
    tables = _parse(text, str(file))
    applied = _applied(tables, overrides)
    return Document(path=file, tables=tables, lines=_places(text), overrides=applied)


def document_of(overrides: Sequence[Override]) -> Document:
    """Return what overrides alone say, later ones winning, where there is no file.

    Raises
    ------
    ConfigurationError
        When one does not fit the tables of those before it.
    """
    tables: dict[str, Any] = {}
    applied = _applied(tables, overrides)
    return Document(path=Path("the command line"), tables=tables, lines={}, overrides=applied)


def parse_override(text: str) -> Override:
    """Read "table.key=value", the value in TOML; a plain word needs no quotes.

    Raises
    ------
    ConfigurationError
        When the text is nothing of the kind.

    Examples
    --------
    >>> parse_override("cluster.scale=unit").value, parse_override("cluster.alpha=0.5").value
    ('unit', 0.5)
    """
    left, equals, right = text.partition("=")
    key = _key_path(left)
    said = f"--set {text}"
    if not equals or key is None or len(key) < 2:
        raise ConfigurationError(
            f"{said}: allowed is table.key=value, for example --set cluster.n_clusters=10."
        )
    try:
        parsed = _parse(f"value = {right}", said)
    except ConfigurationError as error:
        if len(right) > _MAX_LINE or not _BARE.fullmatch(right.strip()):
            raise ConfigurationError(
                f"{said}: {right!r} is no TOML value; allowed are such as 10, 0.5, true, word, "
                '\'"some text"\', \'["a", "b"]\'.'
            ) from error
        return Override(key, right.strip(), said)
    if set(parsed) != {"value"}:
        raise ConfigurationError(f"{said}: one value at a time; repeat --set.")
    return Override(key, parsed["value"], said)


def _read_text(file: Path) -> str:
    if file.is_dir():
        raise ConfigurationError(f"{file} is a directory; give the pipeline file (*.toml) itself.")
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
            f"{file} is larger than {MAX_BYTES >> 10} KiB, so it is no pipeline file. Data are named "
            "in it by path ([data] source = ...), not written into it."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{file} is not UTF-8 text (byte {error.start}); TOML is. Save it as UTF-8."
        ) from error
    return text.replace("\r\n", "\n")


def _parse(text: str, where: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > _MAX_LINE:
            raise ConfigurationError(
                f"{where}, line {number} has {len(line)} characters; allowed are {_MAX_LINE}. Break "
                "a long list into lines."
            )
        if line.count(".") > _MAX_DOTS:
            raise ConfigurationError(
                f"{where}, line {number} has {line.count('.')} dots; allowed are {_MAX_DOTS}. Break "
                "a long list into lines; keys have two or three parts."
            )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(_explained(str(error), where)) from error
    except RecursionError as error:
        raise ConfigurationError(
            f"{where} nests values too deeply; a pipeline has tables of plain values."
        ) from error


def _explained(reason: str, where: str) -> str:
    """Turn tomllib's words and their place into a sentence with a remedy."""
    place = _PLACE.search(reason)
    if place is not None and place[1]:
        where = f"{where}, line {place[1]}, column {place[2]}"
    reason = reason[: place.start()] if place is not None else reason
    if "overwrite" in reason or "twice" in reason or "Duplicate" in reason:
        return f"{where}: {reason}. A key or table may be given only once; keep one of them."
    return f"{where} is not valid TOML: {reason}. Text needs quotes, lists square brackets."


def _key_path(text: str) -> tuple[str, ...] | None:
    if len(text) > _MAX_LINE or not _KEY.fullmatch(f"{text}="):
        return None
    return tuple(part.strip("\"'") for part in re.findall(_PART, text))


def _applied(tables: dict[str, Any], overrides: Sequence[Override]) -> dict[tuple[str, ...], str]:
    """Apply overrides to tables; how each key of theirs was given."""
    _check_set_once(overrides)
    for override in overrides:
        _apply(tables, override)
    return {override.key: override.said for override in overrides}


def _check_set_once(overrides: Sequence[Override]) -> None:
    """Refuse two --set of one key, of which one would be ignored."""
    texts: dict[tuple[str, ...], str] = {}
    for override in overrides:
        if not override.said.startswith("--set "):
            continue
        if override.key in texts:
            raise ConfigurationError(
                f"{texts[override.key]} and {override.said} set the same key. Give "
                f"{'.'.join(override.key)} once."
            )
        texts[override.key] = override.said


def _apply(tables: dict[str, Any], override: Override) -> None:
    table = tables
    for depth, part in enumerate(override.key[:-1], start=1):
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigurationError(
                f"{override.said}: {'.'.join(override.key[:depth])} is {inner!r}, not a table, so "
                "nothing can be set inside it."
            )
        table = inner
    if override.value is None:
        table.pop(override.key[-1], None)
    else:
        table[override.key[-1]] = override.value


def _places(text: str) -> dict[tuple[str, ...], int]:
    """Line of every table and key, as far as one pass over the lines can tell."""
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
