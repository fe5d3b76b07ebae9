"""Share of mutants that the tests kill, per file: ``python -m tests.mutation rank_control``.

Cosmic Ray (``pip install cosmic-ray``) changes one operator, constant or branch of a file at a time and
runs the tests of that file; a mutant that passes them all survives. The work is done in a copy of the
project. Prints a Markdown table and the difference of each survivor; ``--timeout`` bounds one mutant.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["TARGETS", "Target", "main"]

ROOT = Path(__file__).parents[1]

# Annotations are never evaluated, so a mutated "int | None" is the same program.
_EQUIVALENT = ("core/ReplaceBinaryOperator_BitOr_.*",)


@dataclass(frozen=True)
class Target:
    """File to mutate, and the tests that are to notice."""

    module: str
    tests: tuple[str, ...]


TARGETS = {
    "simplex": Target("mscam_dask/linalg/simplex.py", ("tests/linalg/test_simplex.py",)),
    "laplacian": Target("mscam_dask/linalg/laplacian.py", ("tests/linalg/test_laplacian.py",)),
    "orthonormal": Target(
        "mscam_dask/linalg/orthonormal.py", ("tests/linalg/test_orthonormal.py",)
    ),
    "admm": Target("mscam_dask/solvers/admm.py", ("tests/solvers/test_admm.py",)),
    "graph_update": Target(
        "mscam_dask/solvers/graph_update.py",
        ("tests/solvers/test_adaptive_neighbors.py", "tests/solvers/test_graph_update.py"),
    ),
    "rank_control": Target(
        "mscam_dask/solvers/rank_control.py", ("tests/solvers/test_rank_control.py",)
    ),
    "checksums": Target("mscam_dask/data/store/checksums.py", ("tests/data/store",)),
}


def configuration(target: Target, timeout: float) -> str:
    """The configuration of Cosmic Ray, in TOML."""
    command = f"{sys.executable} -m pytest -q -x -p no:randomly -p no:cacheprovider"
    excluded = ", ".join(repr(name) for name in _EQUIVALENT)
    return (
        f"[cosmic-ray]\nmodule-path = '{target.module}'\ntimeout = {timeout}\n"
        f"test-command = '{command} {' '.join(target.tests)}'\n"
        "[cosmic-ray.distributor]\nname = 'local'\n"
        f"[cosmic-ray.filters.operators-filter]\nexclude-operators = [{excluded}]\n"
    )


def mutate(target: Target, timeout: float) -> tuple[int, int, list[str]]:
    """Run the tests against every mutant; return how many died, how many there are, the survivors."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        shutil.copytree(
            ROOT,
            copy,
            ignore=shutil.ignore_patterns(".git", "__pycache__", "docs", "deploy"),
        )
        (copy / "mutation.toml").write_text(configuration(target, timeout))
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        for command in (
            ("cosmic-ray", "init", "mutation.toml", "mutation.sqlite"),
            ("cr-filter-operators", "mutation.sqlite", "mutation.toml"),
            ("cosmic-ray", "baseline", "mutation.toml"),
            ("cosmic-ray", "exec", "mutation.toml", "mutation.sqlite"),
        ):
            subprocess.run(command, cwd=copy, env=environment, check=True)
        with sqlite3.connect(copy / "mutation.sqlite") as session:
            found = session.execute(
                "SELECT test_outcome, diff FROM work_results WHERE worker_outcome = 'NORMAL'"
            ).fetchall()
    survivors = [diff for outcome, diff in found if outcome == "SURVIVED"]
    return len(found) - len(survivors), len(found), survivors


def main(arguments: Sequence[str] | None = None) -> None:
    """Mutate the files that are asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="|".join(TARGETS))
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds of one mutant")
    options = parser.parse_args(arguments)
    write = sys.stdout.write
    for name in options.targets:
        killed, total, survivors = mutate(TARGETS[name], options.timeout)
        for diff in survivors:
            write(f"\n{diff}\n")
        write(f"| {TARGETS[name].module} | {killed} of {total} | {killed / total:.0%} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
