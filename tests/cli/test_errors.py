"""What starting the command line costs, and what the operating system refuses: a message and an exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from mscam_dask.cli.errors import handle_errors
from mscam_dask.errors import WorkerLostError
from tests import processes
from tests.cli.conftest import Call
from tests.messages import quotes
from tests.processes import mscam, printed


def failed(error: Exception) -> Result:
    @click.command()
    @handle_errors
    def command() -> int:
        raise error

    return CliRunner().invoke(command)


@pytest.mark.parametrize(
    ("error", "code", "values"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/absent/x"), 2, ("/", "Read-only", "-o")),
        (OSError(errno.EACCES, "Permission denied", __file__), 2, (__file__, "Permission denied")),
        (PermissionError("denied"), 2, ("PermissionError: denied",)),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"), 2, ("a/b: Not a directory",)),
        (OSError(errno.EIO, "Input/output error", "a"), 1, ("Input/output error: 'a'",)),
        (OSError("of a library"), 1, ("OSError: of a library",)),
        (RuntimeError("can't start new thread"), 75, ("can't start new thread", "ulimit -u")),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), 75, ("ulimit -u",)),
        (MemoryError("Unable to allocate 8 EiB"), 4, ("Unable to allocate 8 EiB", "ulimit -v")),
        (ImportError("x.so: failed to map segment from shared object"), 4, ("x.so", "ulimit -v")),
        (OSError(errno.ENOSPC, "No space left on device", "a"), 75, ("No space left", "'a'")),
        (WorkerLostError("'solved_view' was given up"), 4, ("'solved_view' was given up",)),
    ],
)
def test_an_error_is_a_message_and_an_exit_code(
    error: Exception, code: int, values: tuple[str, ...]
) -> None:
    result = failed(error)
    assert result.exit_code == code
    assert re.search(quotes(*values), result.stderr)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("error", [ImportError("x"), ZeroDivisionError()])
def test_a_defect_keeps_its_traceback(error: Exception) -> None:
    assert failed(error).exception is error


def test_a_finished_run_in_a_read_only_directory_has_nothing_to_do(
    run: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and Path(path).parent == run:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    result = call("run", "tiny.toml", "--in-process", "--set", "report.enabled=true", "-o", run)
    assert (result.exit_code, result.stderr) == (0, ""), "no step began"


def test_sigterm_in_the_first_seconds_is_exit_code_75(here: Path) -> None:
    # what the command imports is replaced by waiting, as long as it is imported
    script = (
        "import sys, time, types\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Waiting:\n"
        "    def __set_name__(self, owner, name):\n"  # Python makes its errors a RuntimeError
        "        time.sleep(60)\n"
        "class Slow(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'mscam_dask.cli.run':\n"
        "            print('importing', flush=True)\n"
        "            type('Owner', (), {'waiting': Waiting()})\n"
        "sys.meta_path.insert(0, Slow())\n"
        "from mscam_dask.cli import main\n"
        "main(['run', 'tiny.toml', '-o', 'out'], prog_name='mscam-dask')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "importing\n"
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 75
    (line,) = said.splitlines()
    assert line.startswith("Error: ")
    assert "SIGTERM" in line


def exit_code(arguments: str, redirection: str) -> int:
    """Exit code of a command whose output goes through a redirection of the shell."""
    line = f"{sys.executable} -m mscam_dask.cli {arguments} {redirection}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(["bash", "-c", line], check=False).returncode


@pytest.mark.parametrize("redirection", ["2>&1 | true", ">&- 2>/dev/full"])
@pytest.mark.thorough
def test_a_run_goes_on_when_its_output_cannot_be_written(here: Path, redirection: str) -> None:
    assert exit_code("run tiny.toml --in-process -o out", redirection) == 0
    record = json.loads((here / "out" / "run.json").read_text())
    assert (record["state"], record["exit_code"]) == ("finished", 0)


@pytest.mark.thorough
def test_an_exit_code_says_what_was_not_written(here: Path) -> None:
    assert exit_code("describe absent", "2>/dev/full") == 3
    assert exit_code("ingest tiny.npz -o tiny.zarr", "2>/dev/null >/dev/full") == 75


def test_a_small_address_space_is_refused_before_libraries_end_the_process() -> None:
    command = f"ulimit -v 700000; exec {sys.executable} -m mscam_dask.cli describe ."
    done = processes.run("bash", "-c", command)
    assert done.returncode == 4
    assert re.match(quotes("0.67 GiB", "ulimit -v", "1.5 GiB"), done.stderr)


HEAVY = ("numpy", "scipy", "sklearn", "dask", "distributed", "zarr", "xarray", "pandas", "rich")

SCRIPT = """
import json, sys
from mscam_dask.cli import main
try:
    main(sys.argv[1:], prog_name="mscam-dask")
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), (["run", "x.toml", "--wrokers", "3"], 2)]
)
def test_help_and_mistyped_options_import_nothing_heavy(arguments: list[str], code: int) -> None:
    found, modules = json.loads(printed(SCRIPT, *arguments).splitlines()[-1])
    assert found == code
    assert "click" in modules
    assert not set(HEAVY) & set(modules)


def helped_with(folder: Path, entry: str) -> subprocess.CompletedProcess[str]:
    """The help of the command line with an extension of this entry point."""
    metadata = folder / "site_extension-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: site-extension\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[mscam_dask.experiments]\nsite = {entry}\n")
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return processes.run(*mscam("--help"), env={**os.environ, "PYTHONPATH": path})


def test_a_command_of_an_extension_replaces_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "site_extension.py").write_text(
        "import click\n"
        "class Extension:\n"
        "    commands = [click.Command('run', help='REPLACED'), click.Command('other')]\n"
        "made = Extension()\n"
    )
    done = helped_with(tmp_path, "site_extension:made")
    assert done.returncode == 0
    assert re.search(quotes("'run'", "site_extension:Extension"), done.stderr)
    assert "REPLACED" not in done.stdout
    assert re.search(r"^  other\b", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("entry", ["site_missing:made", "json:made"])
def test_an_extension_that_cannot_be_loaded_is_named(tmp_path: Path, entry: str) -> None:
    done = helped_with(tmp_path, entry)
    assert done.returncode == 1
    assert entry in done.stderr
    assert "Traceback" not in done.stderr
