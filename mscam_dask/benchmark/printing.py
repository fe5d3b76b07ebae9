"""The screen of an experiment: its progress, its plan, its results, and its directory."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from pathlib import Path

from mscam_dask.benchmark.dry_run import ExperimentPlan
from mscam_dask.benchmark.experiment import Progress
from mscam_dask.benchmark.results import ExperimentRecord, MeanStd
from mscam_dask.cli.console import (
    key_values,
    progress_console,
    relative,
    results_console,
    show,
    table,
)
from mscam_dask.monitor.messages import duration, printable
from mscam_dask.pipeline.run.lock import is_locked

__all__ = [
    "ProgressLines",
    "show_best",
    "show_experiment",
    "show_experiment_plan",
    "show_rows",
]

_GIB = 2.0**30
_MIB = 2**20


class ProgressLines:
    """A line on standard error for each stage and each cell."""

    def __init__(self) -> None:
        self._console = progress_console()
        self._started = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if progress.text:
            self._started = time.monotonic()
            self._write(progress.text)
            return
        entry = progress.entry
        assert entry is not None
        if entry.outcome == "ok":
            accuracy = entry.scores.get("accuracy")
            parts = [] if accuracy is None else [f"ACC {accuracy:.4f}"]
            if entry.seconds is not None:
                parts.append(f"{entry.seconds:.{0 if entry.seconds >= 100 else 1}f} s")
            if entry.peak_memory_bytes is not None:
                parts.append(f"{entry.peak_memory_bytes / _MIB:.0f} MiB")
            said = " ".join(parts)
        else:
            said = f"{entry.outcome}: {entry.reason}"
        elapsed = time.monotonic() - self._started
        left = elapsed / progress.done * (progress.total - progress.done)
        done = f"{progress.done:>{len(str(progress.total))}}/{progress.total}"
        which = f"{entry.method:<10} {entry.dataset} seed {entry.seed}"
        if "sweep" in entry.parameters:  # of one method with one seed
            weight = entry.parameters["graph_weight"]
            which = f"{entry.dataset} alpha {entry.parameters['alpha']:g} weight {weight:g}"
        # 80 columns hold it with the names and numbers of the paper's tables
        self._write(f"{done} {which} {said}, {_duration(left)} left")

    def _write(self, text: str) -> None:
        self._console.file.write(printable(text) + "\n")
        self._console.file.flush()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def show_rows(record: ExperimentRecord, directory: Path) -> None:
    """Print the rows of a comparison, and where its results are."""
    rows = [
        [
            row.dataset,
            row.method + (" (view chosen with labels)" if row.note else ""),
            row.protocol,
            *(
                _text(row.scores[name])
                for name in ("accuracy", "normalized_mutual_information", "adjusted_rand_index")
            ),
            _text(row.scores["seconds"], digits=1),
            f"{row.n_runs - row.n_failed} of {row.n_runs}",
        ]
        for row in record.rows
    ]
    titles = ("Data", "Method", "Protocol", "ACC", "NMI", "ARI", "Seconds", "Runs")
    console = results_console()
    show(console, table(titles, rows, numbers=titles[3:]))
    for name, sentence in record.protocols.items():
        console.file.write(f"{name}: {sentence}.\n")
    _show_where(record, directory)


def _text(value: MeanStd, *, digits: int = 4) -> str:
    if value.mean is None:
        return "-"
    return f"{value.mean:.{digits}f}" + ("" if value.std is None else f" ± {value.std:.{digits}f}")


def show_best(record: ExperimentRecord, directory: Path) -> None:
    """Print the best points of a sweep, and where its results are."""
    rows = []
    for heat_map in record.heat_maps:
        for name, (row, column) in heat_map.best.items():
            accuracy = heat_map.with_labels.get("accuracy", ())
            value = accuracy[row][column] if accuracy else None
            rows.append(
                [
                    heat_map.dataset,
                    name.replace("_", " "),
                    f"{heat_map.alpha[row]:g}",
                    f"{heat_map.graph_weight[column]:g}",
                    "-" if value is None else f"{value:.4f}",
                ]
            )
    titles = ("Data", "Best by (no label seen)", "alpha", "graph weight", "ACC there")
    show(results_console(), table(titles, rows, numbers=titles[2:]))
    _show_where(record, directory)


def _show_where(record: ExperimentRecord, directory: Path) -> None:
    kept = f", {record.n_reused} kept from an earlier start" if record.n_reused else ""
    results_console().file.write(
        f"{len(record.trials)} fits{kept}. Results: {relative(directory)} (report.html, results.md, "
        "results.csv, experiment.json)\n"
    )


def show_experiment_plan(plan: ExperimentPlan) -> None:
    """Print the plan of an experiment."""
    data = ", ".join(
        f"{one.name} ({one.n_samples} samples, {len(one.views)} views)" for one in plan.datasets
    )
    pairs = [
        ("Experiment", f"{plan.kind} in {relative(plan.directory)}"),
        ("To do", _fits_to_do(plan)),
        ("Data", data),
        ("Bytes", f"{plan.read_bytes / _MIB:.1f} MiB of values"),
        ("Methods", ", ".join(plan.methods)),
        ("Workers", f"{plan.n_workers}{_for_a_fit(plan)}"),
        ("Time", _experiment_time(plan)),
    ]
    show(results_console(), key_values(pairs))


def _fits_to_do(plan: ExperimentPlan) -> str:
    if plan.n_missing == 0:
        return f"nothing: all {plan.n_kept} fits have ended"
    kept = f", {plan.n_kept} are kept from an earlier start" if plan.n_kept else ""
    return f"{plan.n_missing} fits{kept}"


def _for_a_fit(plan: ExperimentPlan) -> str:
    if plan.worker_bytes is None:
        return ""
    size = f"{plan.worker_bytes / _GIB:.2f} GiB"
    said = f", each needs up to {size}" if plan.time_limit_s is None else f", a fit may take {size}"
    if plan.limit_bytes is None or plan.worker_bytes == plan.limit_bytes:
        return said
    fits = "has" if plan.worker_bytes <= plan.limit_bytes else "HAS ONLY"
    return f"{said} and a worker {fits} {plan.limit_bytes / _GIB:.2f} GiB"


def _experiment_time(plan: ExperimentPlan) -> str:
    known = plan.n_missing - plan.n_unknown
    said = []
    if known:
        said.append(f"about {duration(plan.seconds)} for {known} fits, as those that ended here")
    if plan.n_unknown:
        limit = "" if plan.time_limit_s is None else f", at most {plan.time_limit_s:g} s each"
        said.append(f"not known for {plan.n_unknown} fits that have no like here yet{limit}")
    return "; ".join(said) or "none"


def show_experiment(record: ExperimentRecord, directory: Path) -> None:
    """Print the command of an experiment, how far it is and where its results are."""
    outcomes = Counter(trial.outcome for trial in record.trials)
    fits = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items())
    if not fits:  # the record has them when all have ended
        fits = f"{sum(1 for _ in directory.glob('trials/*/*.json'))} ended so far"
    state = str(record.state)
    if state == "running" and not is_locked(directory):
        again = f"{record.command} -o {shlex.quote(relative(directory))}"
        state += f", but no process holds it: it was cut off; {again} continues it"
    ended = "" if record.ended is None else f", ended {record.ended}"
    pairs = [
        ("Experiment", f"{record.kind} in {relative(directory)}"),
        ("State", state),
        ("Started", f"{record.started}{ended}"),
        ("Command", record.command),
        ("Data", ", ".join(f"{one.name} ({one.n_samples} samples)" for one in record.datasets)),
        ("Methods", ", ".join(method.name for method in record.methods)),
        ("Fits", fits),
        ("Ran", record.executor or ""),
        ("Report", f"mscam-dask report {shlex.quote(relative(directory))} writes report.html"),
    ]
    show(results_console(), key_values([(name, value or "-") for name, value in pairs]))
