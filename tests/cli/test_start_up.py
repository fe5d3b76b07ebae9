"""What starting the command line costs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.messages import quotes

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
    ("arguments", "code"),
    [(["--help"], 0), (["run", "x.toml", "--wrokers", "3"], 2)],
)
def test_help_and_mistyped_options_import_nothing_heavy(arguments: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    found, modules = json.loads(done.stdout.splitlines()[-1])
    assert found == code
    assert "click" in modules
    assert not set(HEAVY) & set(modules)


def test_a_command_of_an_extension_replaces_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "site_extension.py").write_text(
        "import click\n"
        "class Extension:\n"
        "    commands = [click.Command('run', help='REPLACED'), click.Command('other')]\n"
        "made = Extension()\n"
    )
    metadata = tmp_path / "site_extension-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: site-extension\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[mscam_dask.experiments]\nsite = site_extension:made\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "mscam_dask.cli", "--help"],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    assert re.search(quotes("'run'", "site_extension:Extension"), done.stderr)
    assert "REPLACED" not in done.stdout
    assert re.search(r"^  other\b", done.stdout, re.MULTILINE)
