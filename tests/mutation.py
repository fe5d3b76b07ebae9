"""Share of mutants that the tests kill, per file: ``python -m tests.mutation graph_update --sample 40``.

Cosmic Ray's operators (``pip install cosmic-ray coverage``) change one operator, constant or branch of a file at a time, in a
copy of the checkout. A first run of the tests under coverage says which tests reach which line. Those of the mutant's line run,
the short ones first, until one fails. A mutant that passes them all, or that none reaches, survives. ``--sample`` draws mutants
of each file with a seed. `tests/mutation.toml` lists mutants that are the same program, with the reason. Prints the difference
of each survivor and a Markdown table.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import difflib
import itertools
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[1]

_FIT_TESTS = (
    "tests/engine/test_*.py",
    "tests/estimators/test_*.py",
    "tests/faults/test_bad_input.py",
)
_SOLVER_TESTS = ("tests/linalg", "tests/solvers", *_FIT_TESTS)
_STORE_TESTS = (
    *("tests/data/store", "tests/data/test_checkpoint*.py", "tests/data/test_ingest*.py"),
    *("tests/faults/test_interrupted_checkpoints.py", "tests/golden"),
)
GROUPS: dict[str, tuple[str, ...]] = {
    "mscam_dask/linalg/*.py": _SOLVER_TESTS,
    "mscam_dask/solvers/*.py": _SOLVER_TESTS,
    "mscam_dask/data/store/*.py": _STORE_TESTS,
    "mscam_dask/data/checkpoint*.py": _STORE_TESTS,
    **{
        f"mscam_dask/engine/{name}.py": _FIT_TESTS
        for name in ("outer_loop", "finalize", "fit", "session")
    },
}
"""Files to mutate, and the tests that are to notice; the first pattern of a file counts."""

_PYTEST = (
    *("-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "--tb=no"),
    *("-m", "not slow", "--hypothesis-profile=ci"),
)
_ADDRESS_BYTES = 8 * 2**30


@dataclass(frozen=True)
class Mutant:
    """One change of a file."""

    line: int
    code: str
    before: str
    after: str
    reason: str


def mutants(file: str) -> Iterator[Mutant]:
    """Mutants of a file in an order of their own, without changes of annotations."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    source = Path(file).read_text()
    original, tree, provider = _program(source), get_ast(source), OperatorProvider()
    places: list[tuple[Any, int, int]] = []
    # those left out need the name of a variable
    for name in set(provider) - {"VariableReplacer", "VariableInserter"}:
        operator = provider[name]()
        lines = [
            start[0] for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)
        ]
        places += [(operator, occurrence, line) for occurrence, line in enumerate(lines)]
    places.sort(key=lambda place: (type(place[0]).__name__, str(vars(place[0])), *place[1:]))
    random.shuffle(places)
    for operator, occurrence, line in places:
        code = None
        with contextlib.suppress(AttributeError):  # Cosmic Ray cannot change `except a.b`
            code = mutate_code(source, operator, occurrence)
        if code is not None and _program(code) != original:
            before, after = _changed(source, code)
            yield Mutant(line, code, before, after, reason_of(before, after))


def _program(source: str) -> str:
    """Syntax tree without annotations of functions and local variables, which are never evaluated."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
            for inner in ast.walk(node):
                if isinstance(inner, ast.arg):
                    inner.annotation = None
                if isinstance(inner, ast.AnnAssign):
                    inner.annotation = ast.Constant(None)
    return ast.dump(tree)


def _changed(source: str, code: str) -> tuple[str, str]:
    lines = list(difflib.ndiff(source.splitlines(), code.splitlines()))
    before, after = (
        " ".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return before, after


def reason_of(before: str, after: str) -> str:
    """Reason for which a change is listed as the same program; "" if it is not."""
    for rule in tomllib.loads((ROOT / "tests" / "mutation.toml").read_text())["equivalent"]:
        if re.search(rule["before"], before) and re.search(rule.get("after", ""), after):
            return str(rule["reason"])
    return ""


def _measure_as(name: str) -> None:
    """Count the lines that follow as those of a test, or of a file of tests."""
    from coverage import Coverage

    current = Coverage.current()
    assert current is not None, "this is a plugin of tests under coverage"
    current.switch_context(name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Count the lines of a test, also those that hypothesis runs, as those of the test."""
    _measure_as(item.nodeid.partition("[")[0])


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Count the lines of a fixture that several tests share as those of all tests of the file."""
    test = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (setup)").partition("[")[0]
    if fixturedef.scope != "function":
        _measure_as(test.partition("::")[0])
    try:
        return (yield)
    finally:
        _measure_as(test)


class Tests:
    """Tests of some files, and what a first run under coverage says about them."""

    def __init__(self, files: Sequence[str], patterns: Sequence[str]) -> None:
        import coverage

        names = [str(path) for pattern in patterns for path in sorted(Path().glob(pattern))]
        names += [f"--deselect={test}" for test in _starting_workers(names)]
        measured = ("-m", "coverage", "run", f"--include={','.join(files)}")
        plugin = ("-p", "tests.mutation", "--junitxml=first.xml")
        subprocess.run(
            [sys.executable, *measured, *_PYTEST, *plugin, *names],
            check=True,
            stdout=sys.stderr,
        )
        self.seconds: dict[str, float] = collections.defaultdict(float)
        for case in ET.parse("first.xml").iter("testcase"):
            if group := case.get("classname"):  # none is a file that was skipped
                self.seconds[_node(group, case.get("name", ""))] += float(case.get("time", 0))
        self._data = coverage.CoverageData()
        self._data.read()

    def of(self, file: str, line: int) -> list[str]:
        """Tests that reach the statement of a line, short ones first."""
        contexts = self._data.contexts_by_lineno(str(Path(file).resolve()))
        names = {name for one in _statement(file, line) for name in contexts.get(one, ())}
        if "" in names:  # it runs at the import
            names.update(*contexts.values())
        tests = {one for one in self.seconds if not names.isdisjoint([one, one.partition("::")[0]])}
        return sorted(tests, key=lambda name: self.seconds[name])


def _node(group: str, name: str) -> str:
    """Return what pytest calls a test, without its parameters, from its names in a JUnit report."""
    parts = group.split(".")
    n_path = next(number for number, part in enumerate(parts, 1) if part.startswith("test_"))
    return "::".join(["/".join(parts[:n_path]) + ".py", *parts[n_path:], name.partition("[")[0]])


def _starting_workers(names: Sequence[str]) -> Iterator[str]:
    """Tests that start a Dask cluster, or take one of a fixture, which takes longer than all others of a mutant."""
    for path in map(Path, names):
        for file in path.rglob("test_*.py") if path.is_dir() else [path]:
            body = ast.parse(file.read_text()).body
            functions = [node for node in body if isinstance(node, ast.FunctionDef)]
            starting = {node.name for node in functions if "local_client" in ast.dump(node)}
            for node in functions:
                if not starting.isdisjoint([node.name, *(arg.arg for arg in node.args.args)]):
                    yield f"{file}::{node.name}"


def _statement(file: str, line: int) -> range:
    """Lines of the innermost statement of a line, without those in its body."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(Path(file).read_text())):  # from the outside in
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            if node.lineno <= line <= last:
                found = range(node.lineno, last + 1)
    return found


def survives(file: str, mutant: Mutant, tests: Sequence[str], seconds: float) -> bool:
    """Tell whether these tests pass with a mutant in place of its file."""
    from cosmic_ray.testing import TestOutcome, run_tests

    original = Path(file).read_text()
    Path(file).write_text(mutant.code)
    try:
        command = ["prlimit", f"--as={_ADDRESS_BYTES}", "--core=0", sys.executable]
        line = " ".join([*command, *(repr(part) for part in (*_PYTEST, *tests))])
        outcome, _ = run_tests(line, 60 + 10 * seconds)
    finally:
        Path(file).write_text(original)
    return bool(outcome is TestOutcome.SURVIVED)


def row(name: str, n_tried: int, n_same: int, n_killed: int) -> str:
    """One line of the table; the share has its binomial standard error."""
    n_judged = max(1, n_tried - n_same)
    share = n_killed / n_judged
    error = math.sqrt(share * (1 - share) / n_judged)
    return f"| {name} | {n_tried} | {n_same} | {n_killed} | {share:.0%} ± {error:.0%} |\n"


def files_with_tests(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Files to mutate, all or those of some names, and their tests."""
    found: dict[str, tuple[str, ...]] = {}
    for pattern, tests in GROUPS.items():
        for path in sorted(Path().glob(pattern)):
            if path.stem in (names or [path.stem]) and path.stem != "__init__":
                found.setdefault(str(path), tests)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Mutate the files that are asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="names of files, without .py; all by default")
    parser.add_argument("--sample", type=int, help="mutants of each file; all by default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        os.chdir(copy)
        os.environ["PYTHONPATH"] = str(copy)
        _mutate(options)


def _mutate(options: argparse.Namespace) -> None:
    write = sys.stdout.write
    tests_of = files_with_tests(options.files)
    rows, totals = [], [0, 0, 0]
    for patterns in dict.fromkeys(tests_of.values()):
        files = [file for file in tests_of if tests_of[file] == patterns]
        tests = Tests(files, patterns)
        for file in files:
            random.seed(f"{options.seed} {file}")
            counts = [0, 0, 0]  # tried, the same program, killed
            for item in itertools.islice(mutants(file), options.sample):
                chosen = tests.of(file, item.line)
                seconds = sum(tests.seconds[name] for name in chosen)
                lives = not chosen or survives(file, item, chosen, seconds)
                counts = [
                    counts[0] + 1,
                    counts[1] + (lives and item.reason != ""),
                    counts[2] + (not lives),
                ]
                if lives and not item.reason:
                    write(
                        f"\n{file}:{item.line} ({len(chosen)} tests)\n- {item.before}\n+ {item.after}\n"
                    )
            rows.append(row(file, *counts))
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
            write(f"\n{rows[-1]}")
            sys.stdout.flush()
    head = "| file | tried | same program | killed | share |\n|---|---|---|---|---|\n"
    write(f"\n{head}{''.join(rows)}{row('all', *totals)}")


if __name__ == "__main__":
    main()
