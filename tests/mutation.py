"""Share of mutants that the tests kill, per file: ``python -m tests.mutation rank_control --sample 40``.

Cosmic Ray's operators (``pip install cosmic-ray coverage``) change one operator, constant or branch of a file at a time. A first
run of the tests under coverage says which tests reach which line. Each mutant is then tried in a process forked from one that has
collected the tests: those that reach its line run, the short ones first, until one fails. A mutant that passes them all,
or that none reaches, survives. ``--sample`` draws mutants of each file with a seed. `tests/mutation.toml` lists mutants that are the
same program, with the reason. Prints the difference of each survivor and a Markdown table.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import gc
import hashlib
import json
import math
import os
import random
import re
import resource
import select
import signal
import sys
import time
import tomllib
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

__all__ = ["GROUPS", "main"]

ROOT = Path(__file__).parents[1]

_FIT_TESTS = tuple(
    f"tests/engine/test_{name}.py"
    for name in (
        *("arguments", "candidate_neighbors", "checkpoint", "cuts", "excluded_views", "fit"),
        *(
            "initial_graph",
            "large",
            "loop_rules",
            "n_clusters",
            "reduction",
            "refine",
            "results_by_workers",
            "warm_start",
        ),
    )
)
_SOLVER_TESTS = (
    *("tests/linalg", "tests/solvers", *_FIT_TESTS),
    *(
        f"tests/estimators/test_{name}.py"
        for name in ("incomplete", "borders", "cluster_features", "predict")
    ),
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
        for name in ("outer_loop", "iteration_steps", "finalize", "fit", "refine", "checkpoint*")
    },
}
"""Files to mutate, and the tests that are to notice; the first pattern of a file counts."""

_PYTEST = (
    *("-q", "-s", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "not slow"),
    *(
        "--hypothesis-profile=mutation",
        "--tb=no",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ),
)
_ADDRESS_BYTES = 4 * 2**30


# ---------------------------------------------------------------------------------------------
# Mutants
# ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Mutant:
    """One change of a file."""

    file: str
    line: int
    code: str
    before: str
    after: str
    reason: str = ""
    outcome: str = ""

    @property
    def key(self) -> str:
        """Digest of the mutated file."""
        return hashlib.sha256(f"{self.file}\0{self.code}".encode()).hexdigest()[:16]


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
        found.append(Mutant(file, line, code, *_changed(source, code)))
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


def with_reasons(drawn: Sequence[Mutant]) -> list[Mutant]:
    """Mutants with the reason of those that are listed as the same program."""
    listed = tomllib.loads((ROOT / "tests" / "mutation.toml").read_text())["equivalent"]

    def reason(item: Mutant) -> str:
        for rule in listed:
            if re.search(rule["before"], item.before) and re.search(
                rule.get("after", ""), item.after
            ):
                return str(rule["reason"])
        return ""

    return [replace(item, reason=reason(item)) for item in drawn]


# ---------------------------------------------------------------------------------------------
# Processes
# ---------------------------------------------------------------------------------------------
def in_fork(work: Callable[[], str], cpu_seconds: float) -> str:
    """Result of a function in a forked process group; "" where it dies or takes too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        address_space = (
            int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        )
        resource.setrlimit(resource.RLIMIT_AS, (address_space + _ADDRESS_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_seconds),) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            result = work()
        except BaseException:  # noqa: BLE001 - it is told
            result = traceback.format_exc()
        with os.fdopen(writing, "w") as answer:
            answer.write(result)
        os._exit(0)
    os.close(writing)
    text, end = b"", time.monotonic() + 30 * cpu_seconds  # for a process that only waits
    while select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(reading, 2**16)
        text += part
        if not part:
            break
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and the processes that the tests left
    os.waitpid(child, 0)
    return text.decode()


def patch(mutant: Mutant) -> None:
    """Give the functions, classes and constants of the imported module the code of the mutant."""
    name = mutant.file.removesuffix(".py").replace("/", ".")
    module = sys.modules[name]
    path = str(ROOT / mutant.file)
    changed: dict[str, Any] = {"__name__": name, "__file__": path}
    exec(compile(mutant.code, path, "exec"), changed)  # noqa: S102
    for key, new in changed.items():
        old = vars(module).get(key)
        if new is old or key.startswith("__") or getattr(new, "__module__", name) != name:
            continue
        if changed.get(type(new).__name__) is type(new) and not _is_assigned(mutant, key):
            continue  # an object of a class of the file, whose methods have the new code
        if isinstance(new, type) and isinstance(old, type) and not _changes_class(mutant, key):
            for method, value in vars(new).items():
                _take_code(vars(old).get(method), value, path)
        elif not _take_code(old, new, path):
            for other in list(sys.modules.values()):
                if getattr(other, "__dict__", {}).get(key) is old:
                    setattr(other, key, new)


def _is_assigned(mutant: Mutant, name: str) -> bool:
    """Tell whether a change is in the statement that assigns a constant of the module."""
    return any(
        isinstance(node, ast.Assign | ast.AnnAssign)
        and node.lineno <= mutant.line <= (node.end_lineno or 0)
        and any(isinstance(item, ast.Name) and item.id == name for item in ast.walk(node))
        for node in ast.parse((ROOT / mutant.file).read_text()).body
    )


def _changes_class(mutant: Mutant, name: str) -> bool:
    """Tell whether a change is in the body of a class and in none of its methods."""
    for node in ast.parse((ROOT / mutant.file).read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            return first <= mutant.line <= (node.end_lineno or first) and not any(
                item.lineno <= mutant.line <= (item.end_lineno or 0) for item in methods
            )
    return True


def _take_code(old: Any, new: Any, path: str) -> bool:
    """Replace the code of a function of the file, also behind decorators; tell whether it was possible."""
    if type(old) is not type(new):
        return False
    if isinstance(old, property):
        return _take_code(old.fget, new.fget, path)
    if isinstance(old, classmethod | staticmethod):
        return _take_code(old.__func__, new.__func__, path)
    if hasattr(old, "__wrapped__") and hasattr(new, "__wrapped__"):
        return _take_code(old.__wrapped__, new.__wrapped__, path)
    if (
        not isinstance(old, types.FunctionType)
        or old.__code__.co_filename != path
        or len(old.__code__.co_freevars) != len(new.__code__.co_freevars)
    ):
        return False
    old.__code__ = new.__code__
    old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
    return True


class _Server:
    """Plugin of pytest: collects the tests once, and runs some of them for each mutant in a forked process."""

    def __init__(self, files: Sequence[str], judge: Callable[[_Server, str], None]) -> None:
        self.files = files
        self.judge = judge
        self.items: dict[str, pytest.Item] = {}
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = {}
        self.failed: list[str] = []
        self._spans: dict[str, list[tuple[int, int, bool]]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items if not _starts_workers(item)}
        text = in_fork(self._baseline, 3600)
        if not text.startswith("{"):
            raise SystemExit(f"The tests ended without a mutant: {text or 'the process died'}")
        found = json.loads(text)
        gc.freeze()  # forked processes share the pages
        if found["failed"]:
            raise SystemExit(f"These tests fail without a mutant: {', '.join(found['failed'])}")
        self.seconds = found["seconds"]
        for file, lines in found["lines"].items():
            self.lines[file] = {int(line): set(names) for line, names in lines.items()}
            self._spans[file] = list(_spans((ROOT / file).read_text()))
        for file in self.files:
            self.judge(self, file)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def _run(self, name: str, following: str | None) -> None:
        item = self.items[name]
        item.config.hook.pytest_runtest_protocol(
            item=item, nextitem=None if following is None else self.items[following]
        )

    def _baseline(self) -> str:
        """Run the tests once, under coverage; return the tests that reach each line as JSON."""
        import coverage

        watched = coverage.Coverage(
            data_file=None, include=[str(ROOT / file) for file in self.files]
        )
        watched.start()
        names, seconds = list(self.items), {}
        for name, following in zip(names, [*names[1:], None], strict=True):
            watched.switch_context(name)
            before = time.process_time()
            self._run(name, following)
            seconds[name] = time.process_time() - before
        watched.stop()
        data = watched.get_data()
        lines = {file: data.contexts_by_lineno(str(ROOT / file)) for file in self.files}
        return json.dumps({"lines": lines, "seconds": seconds, "failed": self.failed})

    def tests_of(self, mutant: Mutant, budget: float) -> list[str]:
        """Tests that reach a line, short ones first, as many as take `budget` seconds."""
        contexts = self.lines[mutant.file]
        holding = [span for span in self._spans[mutant.file] if span[0] <= mutant.line <= span[1]]
        names = set().union(*contexts.values())  # of a change outside of functions
        if holding:
            first, last, _ = min(holding, key=lambda span: span[1] - span[0])
            names = set().union(*(contexts.get(line, ()) for line in range(first, last + 1)))
        chosen: list[str] = []
        total = 0.0
        for name in sorted(names & set(self.items), key=lambda name: self.seconds[name]):
            total += self.seconds[name]
            if chosen and total > budget:
                break
            chosen.append(name)
        return chosen

    def coverage_of(self, file: str) -> float:
        """Share of the statements in functions that the tests run."""
        starts = [first for first, _, is_statement in self._spans[file] if is_statement]
        return sum(line in self.lines[file] for line in starts) / max(1, len(starts))

    def survives(self, mutant: Mutant, budget: float) -> bool:
        """Tell whether all tests that reach the mutant pass."""
        chosen = self.tests_of(mutant, budget)

        def test() -> str:
            patch(mutant)
            for name, following in zip(chosen, [*chosen[1:], None], strict=True):
                self._run(name, following)
                if self.failed:
                    return self.failed[0]
            return "passed"

        seconds = 10 + 4 * sum(self.seconds[name] for name in chosen)
        return not chosen or in_fork(test, seconds) == "passed"


def _starts_workers(item: pytest.Item) -> bool:
    """Tell whether a test starts a Dask cluster itself, which takes longer than all others of a mutant."""
    code = getattr(getattr(item, "function", None), "__code__", None)
    return code is not None and "local_client" in code.co_names


def _spans(source: str) -> Iterator[tuple[int, int, bool]]:
    """First and last line of each function, and of each statement in it without the statements in that."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = min([function.lineno, *(item.lineno for item in function.decorator_list)])
        yield first, function.end_lineno or first, False
        for node in ast.walk(function):
            if isinstance(node, ast.stmt) and node is not function:
                body = getattr(node, "body", None)
                last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
                is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                plain = not isinstance(
                    node, ast.FunctionDef | ast.ClassDef | ast.Try | ast.Nonlocal
                )
                yield node.lineno, max(last, node.lineno), plain and not is_text


# ---------------------------------------------------------------------------------------------
# Table
# ---------------------------------------------------------------------------------------------
HEAD = "| file | lines run | mutants | tried | same program | killed | share |\n|---|---|---|---|---|---|---|\n"


def row(name: str, coverage: float | None, n_all: int, tried: Sequence[Mutant]) -> str:
    """One line of the table; the share has its binomial standard error."""
    judged = [item for item in tried if item.outcome == "killed" or not item.reason]
    n_killed = sum(item.outcome == "killed" for item in judged)
    share = n_killed / max(1, len(judged))
    error = math.sqrt(share * (1 - share) / max(1, len(judged)))
    return (
        f"| {name} | {'' if coverage is None else f'{coverage:.0%}'} | {n_all} | {len(tried)} | {len(tried) - len(judged)} | {n_killed} | "
        f"{share:.0%} ± {error:.0%} |\n"
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
    parser.add_argument("--tests", nargs="*", help="tests to run, in place of those of the group")
    parser.add_argument("--killed", type=Path, help="file of mutants that are dead already")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    dead: set[str] = set()
    if options.killed and options.killed.exists():
        dead.update(options.killed.read_text().split())
    settings.register_profile(
        "mutation",
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),  # the first failure is enough
    )
    tests_of = files_with_tests(options.files)
    output = os.fdopen(os.dup(1), "w", buffering=1)
    rows: list[str] = []
    everything: list[Mutant] = []

    def judge(server: _Server, file: str) -> None:
        n_all, drawn = mutants(file, options.sample, options.seed)
        tried = []
        source = (ROOT / file).read_text()
        if not server.survives(Mutant(file, 1, source, "", ""), options.budget):
            raise SystemExit(
                f"{file} fails its tests without a mutant, where it is imported twice."
            )
        for item in with_reasons(drawn):
            lives = item.key not in dead and server.survives(item, options.budget)
            tried.append(replace(item, outcome="survived" if lives else "killed"))
            if not lives and options.killed and item.key not in dead:
                with options.killed.open("a") as stream:
                    stream.write(f"{item.key}\n")
            if lives and not item.reason:
                n_tests = len(server.tests_of(item, options.budget))
                output.write(
                    f"\n{file}:{item.line} ({n_tests} tests)\n- {item.before}\n+ {item.after}\n"
                )
        rows.append(row(file, server.coverage_of(file), n_all, tried))
        everything.extend(tried)
        output.write(f"\n{rows[-1]}")

    for tests in dict.fromkeys(tests_of.values()):
        files = [file for file in tests_of if tests_of[file] == tests]
        named = [
            str(path) for pattern in options.tests or tests for path in sorted(Path().glob(pattern))
        ]
        status = pytest.main([*_PYTEST, *named], plugins=[_Server(files, judge)])
        if status not in (0, 5):
            raise SystemExit(f"pytest ended with {status!r}.")
    output.write(f"\n{HEAD}{''.join(rows)}{row('all', None, len(everything), everything)}")


if __name__ == "__main__":
    main()
