"""What a checkpoint consists of, wherever it lies: a record, arrays, a manifest, and what names it.

CURRENT             name of the newest checkpoint, SHA-256 of its manifest and of itself
<name>/
    manifest.json   path, size and SHA-256 of every other file; its own digest in front
    state.json      the record
    arrays/         Zarr v3 group, readable by itself: crc32c on every chunk, every chunk
                    written, numbers only
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from mscam_dask.data.checkpoint_arrays import decode_arrays, encode_array, encode_group
from mscam_dask.data.checkpoint_record import decode_record, encode_record
from mscam_dask.data.store.manifest import MANIFEST, Manifest, digest_of
from mscam_dask.errors import StoreCorruptError
from mscam_dask.types.checkpoint import Checkpoint

__all__ = ["CURRENT", "Pointer", "newest_whole", "put_all", "read_checkpoint"]

CURRENT = "CURRENT"
"""Name of the pointer."""

_STATE = "state.json"
_ARRAYS = "arrays"


class Pointer:
    """Content of CURRENT.

    Parameters
    ----------
    name : str
        Of the newest checkpoint.
    manifest_sha256 : str
    """

    def __init__(self, name: str, manifest_sha256: str) -> None:
        self.name = name
        self.manifest_sha256 = manifest_sha256

    def encode(self) -> bytes:
        """The content, with a digest of itself at its end."""
        said = {"checkpoint": self.name, "manifest_sha256": self.manifest_sha256}
        own = digest_of(json.dumps(said).encode())
        return (json.dumps({**said, "sha256": own}) + "\n").encode()

    @classmethod
    def decode(cls, content: bytes) -> Pointer:
        """Read what `encode` wrote.

        Raises
        ------
        ValueError
            When it is anything else, to the last bit; says what is wrong.
        """
        try:
            said = json.loads(content)
            pointer = cls(str(said["checkpoint"]), str(said["manifest_sha256"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError("it names no checkpoint") from error
        if pointer.encode() != content:
            raise ValueError("its content is not what its own digest says")
        return pointer


def put_all(snapshot: Checkpoint, put: Callable[[str, bytes], Any]) -> None:
    """Encode a state file by file: the record, then one array at a time; no manifest."""
    put(_STATE, encode_record(snapshot.record))
    for path, content in encode_group(list(snapshot.arrays)).items():
        put(f"{_ARRAYS}/{path}", content)
    for name, values in snapshot.arrays.items():
        for path, content in encode_array(name, values).items():
            put(f"{_ARRAYS}/{path}", content)


def read_checkpoint(root: object, content_of: Callable[[str], bytes | None]) -> Checkpoint:
    """Read one checkpoint, every file compared with the manifest.

    Parameters
    ----------
    root
        Where it lies, for messages.
    content_of
        Content of a file by its path inside; None when it is missing.

    Raises
    ------
    StoreCorruptError
        Naming the first file that is missing or not as it was written.
    """
    content = content_of(MANIFEST)
    if content is None:
        raise StoreCorruptError(f"{root}/{MANIFEST} is missing.")
    try:
        manifest = Manifest.decode(content)
    except ValueError as error:
        raise StoreCorruptError(f"{root}/{MANIFEST} is damaged: {error}.") from error
    contents: dict[str, bytes] = {}
    for path in manifest.files:
        found = content_of(path)
        if found is None:
            raise StoreCorruptError(f"{root}/{path} is missing.")
        problem = manifest.problem_with(path, found)
        if problem is not None:
            raise StoreCorruptError(f"{root}/{path} is damaged: {problem}.")
        contents[path] = found
    try:
        record = decode_record(contents.pop(_STATE))
        arrays = decode_arrays(
            {path.removeprefix(f"{_ARRAYS}/"): found for path, found in contents.items()}
        )
    except (KeyError, ValueError) as error:
        raise StoreCorruptError(
            f"{root} is no checkpoint of this version of mscam_dask: {error}."
        ) from error
    return Checkpoint(arrays, record)


def newest_whole(
    names: Iterable[str],
    read: Callable[[str], Checkpoint],
    problems: Iterable[str],
    *,
    where: object,
) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The first checkpoint that is whole, and what was found wrong before it.

    Parameters
    ----------
    names
        Of checkpoints, newest first.
    read
        Raises StoreCorruptError for a damaged one.
    problems
        What is known to be wrong already.
    where
        Where the checkpoints lie, for the message.

    Raises
    ------
    StoreCorruptError
        When something is wrong and nothing is whole.
    """
    found = list(problems)
    for name in names:
        try:
            snapshot = read(name)
        except StoreCorruptError as error:
            found.append(str(error))
            continue
        return snapshot, tuple(found)
    if found:
        raise StoreCorruptError(
            " ".join(found) + f" No earlier checkpoint is whole. Remove {where} to start the "
            "clustering from the beginning."
        )
    return None, ()
