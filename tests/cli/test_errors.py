"""What the operating system refuses: a message that says where and what to do, and an exit code."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from mscam_dask.cli.errors import handle_errors
from tests.messages import quotes

Call = Callable[..., Result]


def failed(error: OSError) -> Result:
    @click.command()
    @handle_errors
    def command() -> int:
        raise error

    return CliRunner().invoke(command)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_directory_that_may_not_be_written_to_is_exit_code_2(number: int, tmp_path: Path) -> None:
    partial = tmp_path / "absent" / ".data.zarr.135b71c9.partial"
    result = failed(OSError(number, os.strerror(number), str(partial)))
    assert result.exit_code == 2
    assert re.search(quotes(tmp_path, partial.name, os.strerror(number), "-o"), result.stderr)


def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "views.npz"
    file.write_bytes(b"")
    monkeypatch.setattr(os, "access", lambda *_: False)  # for root everything is open
    result = failed(PermissionError(errno.EACCES, "Permission denied", str(file)))
    assert result.exit_code == 2
    assert re.search(quotes(file, "Permission denied"), result.stderr)


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (PermissionError("denied"), 2, "PermissionError: denied"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"), 2, "a/b: Not a directory"),
        (OSError(errno.EIO, "Input/output error", "a"), 1, "Input/output error: 'a'"),
    ],
)
def test_other_failures(error: OSError, code: int, part: str) -> None:
    result = failed(error)
    assert result.exit_code == code
    assert part in result.stderr


def test_a_finished_run_in_a_read_only_directory_has_nothing_to_do(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("run", "tiny.toml", "--in-process", "-o", "out")
    assert call(*arguments).exit_code == 0
    before = {file: file.stat().st_mtime_ns for file in Path("out").rglob("*")}
    opened = os.open

    def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and Path(path).parent.name == "out":
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == "", "no step began"
    assert {file: file.stat().st_mtime_ns for file in Path("out").rglob("*")} == before


def test_sigterm_in_the_first_seconds_is_exit_code_75(here: Path) -> None:
    # what the command imports is replaced by waiting, as long as it is imported
    script = (
        "import sys, time, types\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Slow(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'mscam_dask.cli.run':\n"
        "            print('importing', flush=True)\n"
        "            time.sleep(60)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "from mscam_dask.cli import main\n"
        "main(['run', 'tiny.toml', '-o', 'out'], prog_name='mscam-dask')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 75
    (line,) = said.splitlines()
    assert line.startswith("Error: ")
    assert "SIGTERM" in line
