"""The benchmark scripts run: small sizes, so that they cannot rot."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from tests.benchmark_sets import path_of
from tests.benchmarks import scale_out, unseen

Output = pytest.CaptureFixture[str]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("name", "arguments", "printed"),
    [
        ("growth", "--sizes 1000 2000", "CPU time grows as n^"),
        (
            "from_store",
            "--samples 800 --dims 12 10 --memory 2GiB --workers 1 2 --ceiling --in-memory --paper",
            "of the machine",
        ),
    ],
)
def test_clusters_are_found_and_figures_are_printed(
    name: str, arguments: str, printed: str, capsys: Output
) -> None:
    importlib.import_module(f"tests.benchmarks.{name}").main(arguments.split())
    output = capsys.readouterr().out
    assert printed in output
    assert name != "from_store" or "2 workers" in output


@pytest.mark.timeout(200)
@pytest.mark.thorough
def test_scale_out(capsys: Output) -> None:
    speed_ups = scale_out.main(["--quick", "--workers", "1", "4"])
    assert speed_ups[0] == pytest.approx(1.0)
    assert 1.0 < speed_ups[1] <= 4.0
    assert "| solved_view | " in capsys.readouterr().out


def test_simulated_workers_take_tasks_as_results_allow() -> None:
    """Three tasks, a wait for the first two, and one of the last results."""
    seconds, dependencies, n_waits = (4.0, 2.0, 2.0, 1.0), ((), (), (0,), (1,)), (0, 0, 0, 1)
    recording = scale_out.Recording(
        tuple(
            scale_out.Task("a", *facts)
            for facts in zip(seconds, (0,) * 4, dependencies, n_waits, strict=True)
        ),
        (frozenset({0, 1}), frozenset({3})),
    )
    for n_workers, expected in ((1, 9.0), (2, 6.0), (9, 6.0)):
        assert scale_out.simulate(recording, n_workers, overhead=0.0, round_trip=0.0) == expected
    # four tasks one after the other, and two waits, the second of which is for the last one
    slow = scale_out.simulate(recording, 1, overhead=0.5, round_trip=0.25)
    assert slow == pytest.approx(9.0 + 4 * 0.5 + 0.25)


def test_views_are_added_to_those_there_are() -> None:
    views = [np.arange(12.0).reshape(6, 2), np.arange(6.0)[:, None]]
    added = unseen.with_useless_views(views, "all reordered")
    assert [view.shape for view in added] == [(6, 2), (6, 1), (6, 2), (6, 1)]
    assert not np.array_equal(added[2], views[0])
    np.testing.assert_array_equal(np.sort(added[2], axis=0), views[0])
    assert len(unseen.with_useless_views(views, "2V of noise")) == 6


def test_sets_of_one_name_are_a_line(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mixtures of the largest separation, of which the first shapes have clusters of fifteen samples."""
    few = [data for data in unseen.mixtures([150]) if data[0] == "1.6"][:2]
    monkeypatch.setitem(unseen.DATA, "unequal", lambda: few)
    found = unseen.main(["unequal", "--seeds", "1", "--methods", "mscam", "knn-sc"])
    assert found["1.6"][0] > 0.95
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.slow
def test_useless_views(monkeypatch: pytest.MonkeyPatch) -> None:
    if path_of("msrcv1") is None:
        pytest.skip("msrcv1.npz: MSCAM_DATA (the folder of benchmark sets) is not set")
    monkeypatch.setitem(unseen.DATA, "useless", lambda: unseen.with_added_views(["msrcv1"]))
    found = unseen.main(["useless", "--seeds", "1", "--methods", "mscam"])
    assert len(found) == 6
    assert min(found.values()) > [found["nothing"][0] - 0.05]


def test_unseen_takes_sets_of_a_folder(tmp_path: Path, capsys: Output) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b"], 30)
    first, second = (rng.normal(9.0 * (labels == "a")[:, None], size=(60, 3)) for _ in range(2))
    np.savez(tmp_path / "two.npz", labels=labels, view_0=first, view_1=second)
    assert unseen.main(["--folder", str(tmp_path), "--seeds", "1", "--methods", "mscam"]) == {
        "two": [1.0]
    }
    assert "| two | 60 | 2 | 2 | 1.000 |" in capsys.readouterr().out
