"""Atomic replacement of directories, recovery from a killed writer, and the current version of a store.

Beside a store ``data.zarr`` there may be, with eight random hexadecimal digits each:

``.data.zarr.lock``
    Exists during a write; the operating system's lock on it ends with the process.
``.data.zarr.<hex>.partial``
    A store that is being written, or one that was replaced and is being removed.
``.data.zarr.<hex>.old``
    The store itself, where two names cannot be swapped in one step, between the renames that
    replace it. A writer that was killed there leaves no ``data.zarr``: the next process that
    opens it restores the name.

An object store has no rename. A store at ``s3://bucket/data.zarr`` is therefore written below
``writes/<id>``, read back, and named by the object ``current.json``, which is replaced in one
request: readers find the old store or the new one. A store that was copied there as it is (its
zarr.json lies at the URL itself, no ``current.json``) is read as well.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from mscam_dask.data.store import schema
from mscam_dask.data.store.filesystem import LOCAL, Files, rename_durably, take_lock, unlink_quietly
from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.data.store.schema import corrupt_store, digest_of, root_attributes
from mscam_dask.errors import DataError, MscamError, TemporaryFailure

__all__ = [
    "exclusive_writer",
    "is_name_taken",
    "new_partial",
    "new_version",
    "recover",
    "replace_directory",
    "resolve_current",
    "set_current",
]

# A writer that holds the lock renames, or puts back, within this many pauses.
_PAUSES = 100
_PAUSE_S = 0.01


def new_partial(root: Path) -> Path:
    """Return a unique temporary name beside a directory."""
    return root.with_name(f".{root.name}.{uuid.uuid4().hex[:8]}.partial")


def replace_directory(files: Files, partial: Path, root: Path) -> None:
    """Give a finished directory its name.

    Parameters
    ----------
    files
        Where both are.
    partial
        From `new_partial`, all of it on the disk. Afterwards it is what had the name before, if
        anything had: the caller removes it, also on failure.
    root
        Free, or taken by what is replaced. At every moment it is the old or the new one, except
        where names cannot be swapped (`Files.exchange`): there it is missing between two renames;
        on failure, and by `recover` after a kill, the old one gets its name back.
    """
    is_taken = root.name in files.names(root.parent)
    if is_taken and files.exchange(partial, root):
        files.sync(root.parent)
        return
    aside = partial.with_suffix(".old")
    try:
        if is_taken:
            files.rename(root, aside)
        files.rename(partial, root)
    except BaseException:
        names = files.names(root.parent)
        if aside.name in names and root.name not in names:
            files.rename(aside, root)
        raise
    files.sync(root.parent)
    if is_taken:
        files.rename(aside, partial)  # no longer to be restored


@contextmanager
def exclusive_writer(root: Path) -> Iterator[None]:
    """Lock a store for writing, and recover from a writer that was killed.

    Parameters
    ----------
    root
        The store; its parent exists.

    Raises
    ------
    TemporaryFailure
        On entering, at once, when another process or thread is writing it.
    ConfigurationError
        On entering, when the file system has no locks.
    OSError
        On entering, when files cannot be made beside the store.
    """
    file = root.with_name(f".{root.name}.lock")
    descriptor = _locked(file, root)
    try:
        _recover(root)
        yield
    finally:
        with suppress(OSError):
            file.unlink()  # by its holder only: who opened it before finds it gone
        os.close(descriptor)


def recover(root: Path) -> None:
    """Restore the name of a store that a killed writer had moved aside; else do nothing.

    Raises
    ------
    DataError
        When this process may not rename it.
    TemporaryFailure
        When another process holds the lock for too long.
    ConfigurationError
        When the file system has no locks.
    """
    for _ in range(_PAUSES):
        if os.path.lexists(root) or not any(map(_is_whole_old, _left_over(root))):
            return
        with suppress(TemporaryFailure):
            _recover_now(root)
        time.sleep(_PAUSE_S)
    _recover_now(root)


def _recover_now(root: Path) -> None:
    try:
        with exclusive_writer(root):
            return
    except OSError as error:
        kept = [str(path) for path in _left_over(root) if _is_whole_old(path)]
        raise DataError(
            f"A killed writer left {root} under the name {' or '.join(kept)}, and this process may not "
            f"rename it ({error}). Rename it, or run the command as a user who may write there."
        ) from error


def _locked(file: Path, root: Path) -> int:
    """Return the descriptor of the lock file, locked."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            remedy = "Write the store to one that has, and copy it."
            if not take_lock(descriptor, file, remedy=remedy):
                raise TemporaryFailure(
                    f"Another process is writing {root} (it holds {file}). Wait for it, then run "
                    "the same command again."
                )
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), file.stat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed it between the two calls


def _recover(root: Path) -> None:
    """Restore the newest store that was moved aside, and remove the other leftovers; the lock is held."""
    left = _left_over(root)
    if not os.path.lexists(root):
        aside = [path for path in left if path.suffix == ".old"]
        whole = [path for path in aside if _is_whole_old(path)]
        if whole:
            newest = max(whole, key=lambda path: path.stat().st_ctime_ns)
            rename_durably(LOCAL, newest, root)
        else:
            left = [
                path for path in left if path not in aside
            ]  # kept: it may be all that is left of the store
    for path in left:
        unlink_quietly(LOCAL, path)


def _left_over(root: Path) -> list[Path]:
    """Return temporary directories beside a store."""
    ours = re.compile(rf"\.{re.escape(root.name)}\.[0-9a-f]{{8}}\.(partial|old)")
    try:
        names = LOCAL.names(root.parent)
    except OSError:  # a directory that may not be listed
        return []
    return [root.with_name(name) for name in names if ours.fullmatch(name)]


def _is_whole_old(path: Path) -> bool:
    """Whether a directory that was moved aside is a store whose metadata are whole."""
    try:
        return path.suffix == ".old" and root_attributes(path).get("format") == schema.FORMAT
    except (DataError, OSError):  # OSError: renamed in the middle
        return False


_POINTER = "current.json"
_WRITES = "writes"
_METADATA = "zarr.json"
_ATTEMPTS = 3


class _Pointer(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of current.json: the write, and SHA-256 of its zarr.json."""

    store: str
    sha256: str


def resolve_current(root: Location) -> Location:
    """Return the current location of a store; a directory that a killed writer moved aside is moved back.

    Raises
    ------
    StoreCorruptError
        When current.json or what it names is damaged.
    DataError
        When a killed writer left a directory without its name, and it cannot be put back.
    """
    if isinstance(root, Path):
        recover(root)
        return root
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            content = (root / _POINTER).read_bytes()
        except FileNotFoundError:
            return root
        place, sha256 = _decoded(root, content)
        try:
            found = digest_of((place / _METADATA).read_bytes())
        except FileNotFoundError as error:
            if attempt < _ATTEMPTS:
                continue  # replaced between the two requests
            raise corrupt_store(
                place / _METADATA, f"it is missing, and {root / _POINTER} names it"
            ) from error
        if found != sha256:
            raise corrupt_store(
                place / _METADATA, f"its content is not what {root / _POINTER} says"
            )
        return place
    raise AssertionError


def _decoded(root: ObjectPath, content: bytes) -> tuple[ObjectPath, str]:
    try:
        pointer = msgspec.json.decode(content, type=_Pointer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise corrupt_store(root / _POINTER, f"it names no store ({error})") from error
    if not re.fullmatch(rf"{_WRITES}/[0-9a-f]{{32}}", pointer.store):
        raise corrupt_store(root / _POINTER, f"it names {pointer.store!r}, which is not a write")
    return root / pointer.store, pointer.sha256


def is_name_taken(root: ObjectPath) -> bool:
    """Whether there is anything but writes that were never published."""
    return any(not file.url.startswith(f"{root}/{_WRITES}/") for file in root.sizes())


def new_version(root: ObjectPath) -> ObjectPath:
    """A place below a URL that nobody writes to."""
    return root / _WRITES / uuid.uuid4().hex


def set_current(root: ObjectPath, place: ObjectPath) -> None:
    """Make a finished write the store, and remove the one it replaces.

    When replacing the pointer fails nothing is removed: the answer may have been lost only.
    """
    replaced = resolve_current(root)
    pointer = _Pointer(f"{_WRITES}/{place.name}", digest_of((place / _METADATA).read_bytes()))
    (root / _POINTER).write_bytes(msgspec.json.encode(pointer))
    kept = (f"{root}/{_WRITES}/", f"{root}/{_POINTER}")
    assert isinstance(replaced, ObjectPath)
    with suppress(MscamError):  # the store is there; what is left over costs space only
        old = list(replaced.sizes())
        if replaced == root:
            old = [file for file in old if not file.url.startswith(kept)]
        root.remove(old)
