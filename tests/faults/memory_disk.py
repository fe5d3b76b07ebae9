"""A disk in memory that forgets what was not synced."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path
from typing import Literal

import numpy as np

__all__ = ["Loss", "MemoryDisk"]

Loss = Literal["nothing", "contents", "everything", "some"]


@dataclasses.dataclass(eq=False)
class _File:
    content: bytes = b""
    on_disk: bytes = b""


@dataclasses.dataclass(eq=False)
class _Directory:
    entries: dict[str, _File | _Directory] = dataclasses.field(default_factory=dict)
    on_disk: dict[str, _File | _Directory] = dataclasses.field(default_factory=dict)
    since_sync: list[dict[str, _File | _Directory]] = dataclasses.field(default_factory=list)

    def changed(self) -> None:
        """Remember the names after a change."""
        self.since_sync.append(dict(self.entries))


class MemoryDisk:
    """Files in memory, which know what is on the disk and what is not.

    A file's content is on the disk after the file was synced, a name after its directory was.

    Parameters
    ----------
    can_exchange
        Whether it swaps names of one directory in one step.
    """

    def __init__(self, *, can_exchange: bool = True) -> None:
        self.root = _Directory()
        self.can_exchange = can_exchange

    def after_power_cut(self, loss: Loss, *, seed: int = 0) -> MemoryDisk:
        """The disk as the next process finds it.

        Parameters
        ----------
        loss
            What of all that was not synced is gone: "nothing" (the process was killed, the
            computer runs on), "contents" (names are there, files are empty), "everything", or
            "some": each file is as before, torn or written, and each directory has any first
            few of its changes, so that changes of different directories are reordered.
        seed
            Of "some".
        """
        rng = np.random.default_rng(seed)

        def kept(node: _File | _Directory) -> _File | _Directory:
            if isinstance(node, _File):
                content = node.content if loss == "nothing" else node.on_disk
                if loss == "some":
                    torn = node.content[: (len(node.on_disk) + len(node.content)) // 2]
                    content = (node.on_disk, torn, node.content)[rng.integers(3)]
                return _File(content, content)
            names = node.on_disk if loss == "everything" else node.entries
            if loss == "some":
                states = [node.on_disk, *node.since_sync]
                names = states[rng.integers(len(states))]
            entries = {name: kept(child) for name, child in names.items()}
            return _Directory(entries, dict(entries))

        disk = MemoryDisk(can_exchange=self.can_exchange)
        root = kept(self.root)
        assert isinstance(root, _Directory)
        disk.root = root
        return disk

    def copy(self) -> MemoryDisk:
        """Another disk with the same files, all of them synced."""
        return self.after_power_cut("nothing")

    def mkdir(self, path: Path) -> None:
        parent = self._directory(path.parent)
        if path.name in parent.entries:
            raise _error(errno.EEXIST, path)
        parent.entries[path.name] = _Directory()
        parent.changed()

    def write(self, path: Path, content: bytes) -> None:
        parent = self._directory(path.parent)
        if path.name not in parent.entries:
            parent.entries[path.name] = _File()
            parent.changed()
        node = parent.entries[path.name]
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        node.content = content

    def sync(self, path: Path) -> None:
        node = self._node(path)
        if isinstance(node, _File):
            node.on_disk = node.content
        else:
            node.on_disk = dict(node.entries)
            node.since_sync.clear()

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        parent = self._directory(target.parent)
        if target.name in parent.entries:
            raise _error(errno.EEXIST, target)
        parent.entries[target.name] = self._node(source)
        parent.changed()

    def rename(self, source: Path, target: Path) -> None:
        node = self._node(source)
        there = self._directory(target.parent).entries.get(target.name)
        if isinstance(there, _Directory) and there.entries:
            raise _error(errno.ENOTEMPTY, target)
        old, new = self._directory(source.parent), self._directory(target.parent)
        del old.entries[source.name]
        new.entries[target.name] = node
        new.changed()
        if old is not new:
            old.changed()

    def exchange(self, first: Path, second: Path) -> bool:
        if self.can_exchange:
            parent = self._directory(first.parent)
            entries = parent.entries
            assert second.parent == first.parent
            entries[first.name], entries[second.name] = entries[second.name], entries[first.name]
            parent.changed()
        return self.can_exchange

    def unlink(self, path: Path) -> None:
        if isinstance(self._node(path), _Directory):
            raise _error(errno.EISDIR, path)
        self._remove(path)

    def rmdir(self, path: Path) -> None:
        if self._directory(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        self._remove(path)

    def _remove(self, path: Path) -> None:
        parent = self._directory(path.parent)
        del parent.entries[path.name]
        parent.changed()

    def read(self, path: Path) -> bytes:
        node = self._node(path)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        return node.content

    def names(self, path: Path) -> list[str]:
        return sorted(self._directory(path).entries) if self.is_directory(path) else []

    def is_directory(self, path: Path) -> bool:
        try:
            return isinstance(self._node(path), _Directory)
        except OSError:
            return False

    def _node(self, path: Path) -> _File | _Directory:
        node: _File | _Directory = self.root
        for part in path.parts[1:]:
            if isinstance(node, _File):
                raise _error(errno.ENOTDIR, path)
            if part not in node.entries:
                raise _error(errno.ENOENT, path)
            node = node.entries[part]
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._node(path)
        if isinstance(node, _File):
            raise _error(errno.ENOTDIR, path)
        return node


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
