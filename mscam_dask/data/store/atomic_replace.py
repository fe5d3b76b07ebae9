"""Atomic replacement of directories, recovery from a killed writer, and the current version of a store.

Beside ``data.zarr`` there may be ``.data.zarr.lock``, which a writer locks;
``.data.zarr.<hex>.partial``, a store that is written or removed; and ``.data.zarr.<hex>.old``, the
store itself between the two renames that replace it where names cannot be swapped. An object store
has no rename: ``current.json`` names the write below ``writes/`` that is the store.
"""

from __future__ import annotations

import itertools
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from mscam_dask.data.store.arrays import (
    DATASET,
    METADATA,
    corrupt_store,
    digest_of,
)
from mscam_dask.data.store.filesystem import (
    LOCAL,
    open_regular,
    remove_quietly,
    rename_durably,
    sync_tree,
    take_lock,
)
from mscam_dask.data.store.object_store import Location, ObjectPath
from mscam_dask.errors import DataError, MscamError, TemporaryFailure

# A writer that holds the lock renames, or puts back, within this many pauses.
_PAUSES = 100
_PAUSE_S = 0.01

POINTER = "current.json"
WRITES = "writes"
_ATTEMPTS = 3


def new_partial(root: Path) -> Path:
    """Return a unique temporary name beside a directory."""
    return root.with_name(f".{root.name}.{uuid.uuid4().hex[:8]}.partial")


def replace_directory(partial: Path, root: Path) -> None:
    """Give a finished directory its name, once it is on the disk; `partial` is the old one afterwards."""
    sync_tree(partial)
    is_taken = os.path.lexists(root)
    if is_taken and LOCAL.exchange(partial, root):
        LOCAL.sync(root.parent)
        return
    aside = partial.with_suffix(".old")
    try:
        if is_taken:
            root.rename(aside)
        partial.rename(root)
    except BaseException:
        if os.path.lexists(aside) and not os.path.lexists(root):
            aside.rename(root)
        raise
    LOCAL.sync(root.parent)
    if is_taken:
        aside.rename(partial)  # no longer to be restored


@contextmanager
def exclusive_writer(root: Path) -> Iterator[None]:
    """Lock a store for writing, or raise `TemporaryFailure` at once, and recover from a writer that was killed."""
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
    """Restore the name of a store that a killed writer had moved aside; else do nothing."""
    for attempt in itertools.count(1):
        if os.path.lexists(
            root
        ):  # before what is beside it, for a writer may move it there meanwhile
            return
        left = [str(path) for path in _left_over(root) if _is_whole_old(path)]
        if not left:
            return
        try:
            with exclusive_writer(root):
                continue
        except TemporaryFailure:
            if attempt > _PAUSES:
                raise
        except OSError as error:
            raise DataError(
                f"A killed writer left {root} under the name {' or '.join(left)}, and this process may not "
                f"rename it ({error}). Rename it, or run the command as a user who may write there."
            ) from error
        time.sleep(_PAUSE_S)


def _locked(file: Path, root: Path) -> int:
    """Return the descriptor of the lock file, locked."""
    while True:
        descriptor = open_regular(file, os.O_RDWR | os.O_CREAT, mode=0o666)
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
        whole = [path for path in left if _is_whole_old(path)]
        if whole:
            rename_durably(max(whole, key=lambda path: path.stat().st_ctime_ns), root)
        else:  # what was moved aside may be all that is left of the store
            left = [path for path in left if path.suffix != ".old"]
    for path in left:
        remove_quietly(path)


def _left_over(root: Path) -> list[Path]:
    """Return temporary directories beside a store."""
    ours = re.compile(rf"\.{re.escape(root.name)}\.[0-9a-f]{{8}}\.(partial|old)")
    try:
        return sorted(path for path in root.parent.iterdir() if ours.fullmatch(path.name))
    except OSError:  # a directory that is missing, or may not be listed
        return []


def _is_whole_old(path: Path) -> bool:
    """Whether a directory that was moved aside is a store whose metadata are whole."""
    try:
        return path.suffix == ".old" and DATASET.is_at(path)
    except (DataError, OSError):  # OSError: renamed in the middle
        return False


class _Pointer(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of current.json: path of the current store below the root, and SHA-256 of its zarr.json."""

    store: str
    sha256: str


def resolve_current(root: Location) -> Location:
    """Return the current location of a store; a directory that a killed writer moved aside is moved back."""
    if isinstance(root, Path):
        recover(root)
        return root
    file = metadata = root / POINTER
    for _ in range(_ATTEMPTS):
        try:
            pointer = msgspec.json.decode(file.read_bytes(), type=_Pointer)
        except FileNotFoundError:
            return root
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise corrupt_store(file, f"it names no store ({error})") from error
        if not re.fullmatch(rf"{WRITES}/[0-9a-f]{{32}}", pointer.store):
            raise corrupt_store(file, f"it names {pointer.store!r}, which is not a write")
        metadata = root / pointer.store / METADATA
        with suppress(FileNotFoundError):  # replaced between the two requests
            if digest_of(metadata.read_bytes()) != pointer.sha256:
                raise corrupt_store(metadata, f"its content is not what {file} says")
            return metadata.parent
    raise corrupt_store(metadata, f"it is missing, and {file} names it")


def is_taken(root: Location) -> bool:
    """Whether there is anything but an empty directory, or writes to a URL that were never published."""
    if isinstance(root, ObjectPath):
        return any(not file.url.startswith(f"{root}/{WRITES}/") for file in root.sizes())
    return root.exists() and not (root.is_dir() and not any(root.iterdir()))


def set_current(root: ObjectPath, place: ObjectPath) -> None:
    """Make a finished write the store, and remove the one it replaces, unless naming it failed."""
    replaced = resolve_current(root)
    pointer = _Pointer(f"{WRITES}/{place.name}", digest_of((place / METADATA).read_bytes()))
    (root / POINTER).write_bytes(msgspec.json.encode(pointer))
    assert isinstance(replaced, ObjectPath)
    with suppress(MscamError):  # the store is there; what is left over costs space only
        old = list(replaced.sizes())
        if replaced == root:
            kept = (f"{root}/{WRITES}/", f"{root}/{POINTER}")
            old = [file for file in old if not file.url.startswith(kept)]
        root.remove(old)
