"""What starting the command line costs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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
