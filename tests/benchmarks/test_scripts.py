"""The benchmark scripts run: small sizes, so that they cannot rot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmark_sets import path_of
from tests.benchmarks import (
    from_store,
    growth,
    indices,
    many_views,
    roofline,
    scale_out,
    soak,
    two_workers,
    unequal,
    unseen,
    useless_views,
)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_growth(capsys: pytest.CaptureFixture[str]) -> None:
    runs = growth.main(["--quick"])
    assert set(runs) == {"MSCAM", "smvsc"}
    assert [run.n_samples for run in runs["MSCAM"]] == [1000, 2000]
    assert all(run.components == 10 for run in runs["MSCAM"])
    assert all(run.peak_bytes >= run.data_bytes > 0 for run in runs["MSCAM"])
    assert "CPU time grows as n^" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_from_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "data.zarr"
    arguments = ["--samples", "800", "--memory", "2GiB", "--store", str(store)]
    model = from_store.main([*arguments, "--workers", "1"])
    assert model.n_connected_components_ == 10
    assert "10 components" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_many_views(capsys: pytest.CaptureFixture[str]) -> None:
    measured = many_views.main(
        ["--views", "18", "--samples", "150", "--features", "12", "--workers", "1", "--alone", "1"]
    )
    assert measured.n_components == 10
    assert measured.ratio > 1.0
    assert measured.megabytes > 0.0
    assert "V = 18" in capsys.readouterr().out


@pytest.mark.timeout(200)
@pytest.mark.thorough
def test_scale_out(capsys: pytest.CaptureFixture[str]) -> None:
    speed_ups = scale_out.main(["--quick", "--workers", "1", "4"])
    assert speed_ups[0] == pytest.approx(1.0)
    assert 1.0 < speed_ups[1] <= 4.0
    printed = capsys.readouterr().out
    assert "| 4 | " in printed
    assert "| admm_view | " in printed


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
        found = scale_out.simulate(recording, n_workers, overhead=0.0, round_trip=0.0)
        assert found.seconds == expected
    many = scale_out.simulate(recording, 9, overhead=0.0, round_trip=0.0)
    assert many.path == (0, 2)
    # four tasks one after the other, and two waits, the second of which is for the last one
    slow = scale_out.simulate(recording, 1, overhead=0.5, round_trip=0.25)
    assert slow.seconds == pytest.approx(9.0 + 4 * 0.5 + 0.25)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_workers(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--samples", "400", "--dims", "12", "10", "--pairs", "1", "--ceiling"]
    (ratio,) = two_workers.main(arguments)
    assert ratio > 0.0
    assert "of the machine" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_soak(capsys: pytest.CaptureFixture[str]) -> None:
    shares = soak.main(["--quick"])
    assert set(shares) == set(soak.NAMES)
    for name in ("spans", "topics", "timers"):
        assert shares[name] < 0.05
    assert shares["client_mib"] < 0.5
    assert "growth after" in capsys.readouterr().out


def test_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    assert roofline.main(["--samples", "300", "--dims", "20", "30"]) > 1.0
    assert "the whole fit" in capsys.readouterr().out


def test_ranked() -> None:
    rho, share = indices.ranked([0.1, 0.4, float("nan"), 0.2], [0.3, 0.6, 0.9, 0.5])
    assert rho == pytest.approx(1.0)
    assert share == pytest.approx(0.6 / 0.9)


def test_clusters_of_unequal_size_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--sizes", "150", "--separations", "1.6"]
    means = unequal.main(["--methods", "mscam", "knn-sc", *few])
    assert means["mscam"] > 0.95
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.slow
def test_useless_views(capsys: pytest.CaptureFixture[str]) -> None:
    if path_of("msrcv1") is None:
        pytest.skip("msrcv1.npz: MSCAM_DATA (the folder of benchmark sets) is not set")
    means = useless_views.main(["--methods", "mscam", "--sets", "msrcv1"])
    assert min(means["mscam"]) > means["mscam"][0] - 0.05
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_views_are_added_to_those_there_are() -> None:
    views = [np.arange(12.0).reshape(6, 2), np.arange(6.0)[:, None]]
    added = useless_views.with_useless_views(views, "all reordered")
    assert [view.shape for view in added] == [(6, 2), (6, 1), (6, 2), (6, 1)]
    assert not np.array_equal(added[2], views[0])
    np.testing.assert_array_equal(np.sort(added[2], axis=0), views[0])
    assert len(useless_views.with_useless_views(views, "2V of noise")) == 6


def test_unseen_takes_sets_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b"], 30)
    first, second = (rng.normal(9.0 * (labels == "a")[:, None], size=(60, 3)) for _ in range(2))
    np.savez(tmp_path / "two.npz", labels=labels, view_0=first, view_1=second)
    assert unseen.main(["--folder", str(tmp_path), "--seeds", "1", "--methods", "mscam"]) == [[1.0]]
    assert "| two | 60 | 2 | 2 | 1.000 |" in capsys.readouterr().out


def test_unseen_draws_samples_of_every_class(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--methods", "mscam", "knn-sc", "--seeds", "1", "--only", "iris", "breast cancer"]
    (scores,) = unseen.main([*arguments, "--per-class", "12"])
    assert len(scores) == 2
    assert min(scores) > 0.3
    table = capsys.readouterr().out
    assert "| iris | 36 | 2 | 3 |" in table
    assert "breast cancer" not in table, "two classes"
