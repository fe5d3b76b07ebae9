"""A list of files with their sizes and digests: what was written is there, all of it, as it was."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct

__all__ = ["MANIFEST", "FileEntry", "Manifest", "digest_of", "entry_of"]

MANIFEST = "manifest.json"
"""Name of the file in the directory whose files it lists."""

_VERSION = 1


class FileEntry(Struct, frozen=True):
    """Size in bytes and SHA-256 of one file."""

    n_bytes: int
    sha256: str


class _Body(Struct, frozen=True):
    version: int
    files: dict[str, FileEntry]


class _Sealed(Struct, frozen=True):
    """The body as it was written, so that its digest can be taken again."""

    sha256: str
    manifest: msgspec.Raw


def digest_of(content: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def entry_of(content: bytes) -> FileEntry:
    """Entry of a file with this content."""
    return FileEntry(len(content), digest_of(content))


class Manifest:
    """Files of one directory, by path inside it with forward slashes.

    Parameters
    ----------
    files : mapping of str to FileEntry
    """

    def __init__(self, files: Mapping[str, FileEntry]) -> None:
        self.files = dict(sorted(files.items()))

    def encode(self) -> bytes:
        """The content of the manifest file, with its own digest in front."""
        body = msgspec.json.encode(_Body(_VERSION, self.files))
        return msgspec.json.encode(_Sealed(digest_of(body), msgspec.Raw(body))) + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """Read what `encode` wrote.

        Raises
        ------
        ValueError
            When it is anything else, to the last bit; says what is wrong.
        """
        try:
            sealed = msgspec.json.decode(content, type=_Sealed)
            body = msgspec.json.decode(sealed.manifest, type=_Body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"no manifest: {error}") from error
        if digest_of(bytes(sealed.manifest)) != sealed.sha256:
            raise ValueError("its content is not what its own digest says")
        if body.version != _VERSION:
            raise ValueError(f"manifest of version {body.version}, not {_VERSION}")
        manifest = cls(body.files)
        if manifest.encode() != content:
            raise ValueError("it is not as it was written")
        return manifest

    def problem_with(self, name: str, content: bytes) -> str | None:
        """What is wrong with a listed file's content; None when it is as it was written."""
        entry = self.files[name]
        if len(content) != entry.n_bytes:
            return f"it has {len(content)} bytes, {entry.n_bytes} were written"
        if digest_of(content) != entry.sha256:
            return "its content is not what was written (SHA-256 differs)"
        return None
