"""Share of mutants that the tests kill, per file: ``python -m tests.mutation rank_control --sample 40``.

Cosmic Ray's operators (``pip install cosmic-ray coverage``) change one operator, constant or branch of a file at a time. A first
run of the tests under coverage says which tests reach which line. Each mutant is then tried in a forked process, which imports
the mutant in place of the file: the tests that reach its line run, the short ones first, until one fails. A mutant that passes
them all, or that none reaches, survives. ``--sample`` draws mutants of each file with a seed. `tests/mutation.toml` lists mutants
that are the same program, with the reason. Prints the difference of each survivor and a Markdown table.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import importlib
import json
import math
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import Phase, settings

ROOT = Path(__file__).parents[1]

_FIT_TESTS = ("tests/engine/test_*.py",)
_SOLVER_TESTS = (
    *("tests/linalg", "tests/solvers", *_FIT_TESTS),
    *("tests/estimators/test_incomplete.py", "tests/estimators/test_borders.py"),
    *("tests/estimators/test_cluster_features.py", "tests/estimators/test_predict.py"),
)
_STORE_TESTS = (
    *("tests/data/store", "tests/data/test_checkpoint*.py", "tests/data/test_ingest*.py"),
    *("tests/faults/test_failing_*.py", "tests/faults/test_damaged_files.py", "tests/golden"),
)
GROUPS: dict[str, tuple[str, ...]] = {
    "mscam_dask/linalg/*.py": _SOLVER_TESTS,
    "mscam_dask/solvers/*.py": _SOLVER_TESTS,
    "mscam_dask/data/store/*.py": _STORE_TESTS,
    "mscam_dask/data/checkpoint*.py": _STORE_TESTS,
    **{
        f"mscam_dask/engine/{name}.py": _FIT_TESTS
        for name in ("outer_loop", "finalize", "fit", "refine", "checkpoint*")
    },
}
"""Files to mutate, and the tests that are to notice; the first pattern of a file counts."""

_PYTEST = (
    *("-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "not slow"),
    *("--hypothesis-profile=mutation", "--tb=no"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_FORK = multiprocessing.get_context("fork")
_ADDRESS_BYTES = 4 * 2**30
_SHARED = ("distributed", "pandas", "scipy.sparse.linalg", "sklearn.cluster", "zarr")
"""Modules that are imported once, for all forks."""


@dataclass(frozen=True)
class Mutant:
    """One change of a file."""

    file: str
    line: int
    code: str
    before: str
    after: str
    reason: str
    outcome: str = ""


def mutants(file: str, sample: int | None, seed: int) -> tuple[int, list[Mutant]]:
    """Number of the mutants of a file, and those drawn of them, without changes of annotations."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import MutationVisitor
    from cosmic_ray.operators.provider import OperatorProvider

    source = (ROOT / file).read_text()
    original = _program(source)
    tree = get_ast(source)
    places: list[tuple[Any, int, int]] = []
    provider = OperatorProvider()
    for name in provider:
        if name in ("VariableReplacer", "VariableInserter"):  # they need the name of a variable
            continue
        operator = provider[name]()
        lines = [
            start[0] for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)
        ]
        places += [(operator, occurrence, line) for occurrence, line in enumerate(lines)]
    order = random.Random(f"{seed} {file}").sample(places, len(places))
    found: list[Mutant] = []
    n_same = n_tried = 0
    for operator, occurrence, line in order:
        if sample is not None and len(found) == sample:
            break
        n_tried += 1
        code = None
        with contextlib.suppress(AttributeError):  # Cosmic Ray cannot change `except a.b`
            code = MutationVisitor.mutate_code(source, operator, occurrence)
        if code is None or _program(code) == original:
            n_same += 1
            continue
        changed = _changed(source, code)
        found.append(Mutant(file, line, code, *changed, reason_of(*changed)))
    return round(len(places) * (1 - n_same / max(1, n_tried))), found


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


def in_fork(work: Callable[[], str], cpu_seconds: float) -> str:
    """Result of a function in a forked process group; "" where it dies or takes too long."""
    receiver, sender = _FORK.Pipe(duplex=False)
    child = _FORK.Process(target=_send, args=(work, cpu_seconds, sender))
    child.start()
    assert child.pid is not None
    sender.close()
    text = ""
    with contextlib.suppress(EOFError):
        if receiver.poll(30 * cpu_seconds):  # for a process that only waits
            text = receiver.recv()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # and the processes that the tests left
    child.join()
    return text


def _send(work: Callable[[], str], cpu_seconds: float, sender: Connection) -> None:
    """Send the result of a function, within limits of time and memory."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * resource.getpagesize() + _ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_seconds),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        sender.send(work())
    except BaseException:  # noqa: BLE001 - it is told
        sender.send(traceback.format_exc())


class _Watch:
    """Plugin of pytest: lines that each test reaches, and its CPU seconds."""

    def __init__(self, files: Sequence[str]) -> None:
        import coverage

        self.files = files
        self.seconds: dict[str, float] = {}
        self.failed = ""
        self._coverage = coverage.Coverage(
            data_file=None, include=[str(ROOT / file) for file in files]
        )

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not _starts_workers(item)]
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        before = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - before
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def found(self) -> dict[str, Any]:
        """Tests by line of each file, and seconds by test."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {file: data.contexts_by_lineno(str(ROOT / file)) for file in self.files}
        return {"lines": lines, "seconds": self.seconds}


class Tests:
    """Tests of some files, and what the first run says about them."""

    def __init__(self, files: Sequence[str], names: Sequence[str]) -> None:
        text = in_fork(lambda: _first_run(files, names), 3600)
        if not text.startswith("{"):
            raise SystemExit(f"The tests fail without a mutant: {text or 'the process died'}")
        found = json.loads(text)
        self.seconds: dict[str, float] = found["seconds"]
        self._lines = {
            file: {int(line): set(names) for line, names in lines.items()}
            for file, lines in found["lines"].items()
        }
        self._spans = {file: list(_spans((ROOT / file).read_text())) for file in files}

    def of(self, mutant: Mutant, budget: float) -> list[str]:
        """Tests that reach a line, short ones first, as many as take `budget` seconds."""
        contexts = self._lines[mutant.file]
        holding = [span for span in self._spans[mutant.file] if mutant.line in span]
        names = set().union(*contexts.values())  # of a change outside of functions
        if holding:
            names = set().union(*(contexts.get(line, ()) for line in min(holding, key=len)))
        chosen: list[str] = []
        total = 0.0
        for name in sorted(names & set(self.seconds), key=lambda name: self.seconds[name]):
            total += self.seconds[name]
            if chosen and total > budget:
                break
            chosen.append(name)
        return chosen

    def survives(self, mutant: Mutant, budget: float) -> bool:
        """Tell whether all tests that reach the mutant pass."""
        chosen = self.of(mutant, budget)
        seconds = 30 + 4 * sum(self.seconds[name] for name in chosen)
        return not chosen or in_fork(lambda: _run_with(mutant, chosen), seconds) == "0"


def _first_run(files: Sequence[str], names: Sequence[str]) -> str:
    """Run the tests under coverage; return what the plugin found as JSON, or the code of pytest."""
    watch = _Watch(files)
    status = pytest.main([*_PYTEST, *names], plugins=[watch])
    return f"{watch.failed} {status!r}" if status else json.dumps(watch.found())


def _run_with(mutant: Mutant, names: Sequence[str]) -> str:
    """Run tests with a mutant in place of its file; return the code of pytest."""
    path, get_code = str(ROOT / mutant.file), SourceFileLoader.get_code

    def get_mutant(self: SourceFileLoader, name: str) -> CodeType | None:
        if self.path == path:
            return compile(mutant.code, path, "exec")
        return get_code(self, name)

    SourceFileLoader.get_code = get_mutant  # type: ignore[assignment, method-assign]
    return str(int(pytest.main([*_PYTEST, *names])))


def _starts_workers(item: pytest.Item) -> bool:
    """Tell whether a test starts a Dask cluster itself, which takes longer than all others of a mutant."""
    code = getattr(getattr(item, "function", None), "__code__", None)
    return code is not None and "local_client" in code.co_names


def _spans(source: str) -> Iterator[range]:
    """Lines of each function, and of each statement in it without the statements in that."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = min([function.lineno, *(item.lineno for item in function.decorator_list)])
        yield range(first, (function.end_lineno or first) + 1)
        for node in ast.walk(function):
            if isinstance(node, ast.stmt) and node is not function:
                body = getattr(node, "body", None)
                last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
                yield range(node.lineno, max(last, node.lineno) + 1)


HEAD = "| file | mutants | tried | same program | killed | share |\n|---|---|---|---|---|---|\n"


def row(name: str, n_all: int, tried: Sequence[Mutant]) -> str:
    """One line of the table; the share has its binomial standard error."""
    judged = [item for item in tried if item.outcome == "killed" or not item.reason]
    n_killed = sum(item.outcome == "killed" for item in judged)
    share = n_killed / max(1, len(judged))
    error = math.sqrt(share * (1 - share) / max(1, len(judged)))
    return (
        f"| {name} | {n_all} | {len(tried)} | {len(tried) - len(judged)} | {n_killed} "
        f"| {share:.0%} ± {error:.0%} |\n"
    )


def files_with_tests(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Files to mutate, all or those of some names, and their tests."""
    found: dict[str, tuple[str, ...]] = {}
    for pattern, tests in GROUPS.items():
        for path in sorted(ROOT.glob(pattern)):
            if path.stem in (names or [path.stem]) and path.stem != "__init__":
                found.setdefault(str(path.relative_to(ROOT)), tests)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Mutate the files that are asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="names of files, without .py; all by default")
    parser.add_argument("--sample", type=int, help="mutants of each file; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--budget", type=float, default=5.0, help="CPU seconds of tests of one mutant"
    )
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    # the first failure is enough
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(
        "mutation", deadline=None, derandomize=True, database=None, phases=phases
    )
    for name in _SHARED:
        importlib.import_module(name)
    write = sys.stdout.write
    tests_of = files_with_tests(options.files)
    rows: list[str] = []
    everything: list[Mutant] = []
    for patterns in dict.fromkeys(tests_of.values()):
        files = [file for file in tests_of if tests_of[file] == patterns]
        named = [str(path) for pattern in patterns for path in sorted(Path().glob(pattern))]
        tests = Tests(files, named)
        for file in files:
            n_all, drawn = mutants(file, options.sample, options.seed)
            tried = []
            for item in drawn:
                lives = tests.survives(item, options.budget)
                tried.append(replace(item, outcome="survived" if lives else "killed"))
                if lives and not item.reason:
                    n_tests = len(tests.of(item, options.budget))
                    write(
                        f"\n{file}:{item.line} ({n_tests} tests)\n- {item.before}\n+ {item.after}\n"
                    )
            rows.append(row(file, n_all, tried))
            everything.extend(tried)
            write(f"\n{rows[-1]}")
            sys.stdout.flush()
    write(f"\n{HEAD}{''.join(rows)}{row('all', len(everything), everything)}")


if __name__ == "__main__":
    main()
