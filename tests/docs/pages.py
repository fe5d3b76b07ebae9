"""Runs the examples of a documentation page, in their order, in a folder of the page's own.

toml and python blocks whose first line is a comment with a file name are saved under that name. Other
python blocks are executed, in one namespace for a page. Lines of console blocks that begin with a dollar sign,
and bash blocks as a whole, are run by bash; they must exit with 0, unless an error is shown below.
Text below such a line is the output, word by word; "..." stands for any words.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sybil import Example

_COMMAND_LIMIT_S = 240
_FILE_NAME = re.compile(r"# (\S+\.(toml|py))\n")


def run_page(page: Path) -> int:
    """Run a page's examples in the working directory; how many there were."""
    from sybil import Sybil
    from sybil.parsers.markdown import CodeBlockParser

    languages = {"toml": _save, "python": _execute, "console": _run_lines, "bash": _run_script}
    sybil = Sybil(parsers=[CodeBlockParser(name, run) for name, run in languages.items()])
    count = 0
    for example in sybil.parse(page).examples():
        example.evaluate()
        count += 1
    return count


def _save(example: Example) -> None:
    if named := _FILE_NAME.match(example.parsed):
        Path(named[1]).write_text(example.parsed, encoding="utf-8")


def _execute(example: Example) -> None:
    from sybil.evaluators.python import PythonEvaluator

    if _FILE_NAME.match(example.parsed):
        _save(example)
    else:
        PythonEvaluator()(example)


def _run_lines(example: Example) -> None:
    for command in re.split(r"^\$ ", example.parsed, flags=re.MULTILINE)[1:]:
        script, _, shown = command.partition("\n")
        said = _bash(script, is_refused=shown.startswith("Error: "))
        pattern = re.escape(" ".join(shown.split())).replace(r"\.\.\.", ".*")
        if shown.strip() and not re.fullmatch(pattern, " ".join(said.split())):
            raise AssertionError(f"{script}\nshown\n{shown}\nsaid\n{said}")


def _run_script(example: Example) -> None:
    _bash(example.parsed)


def _bash(script: str, *, is_refused: bool = False) -> str:
    """Output of a script in which `mscam-dask` is the one under test."""
    done = subprocess.run(
        ["bash", "-uc", f'mscam-dask() {{ "$PYTHON" -m mscam_dask.cli "$@"; }}\n{script}'],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=_COMMAND_LIMIT_S,
        check=False,
    )
    if (done.returncode != 0) != is_refused:
        raise AssertionError(f"{script}\nexit code {done.returncode}\n{done.stderr}{done.stdout}")
    return done.stdout + done.stderr
