"""Results that no fit made: quick to build at any size, with names from nowhere."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from mscam_dask.monitor.report.page import FileLink, RunContent
from mscam_dask.monitor.run_record import RunRecord
from mscam_dask.types.parameters import Parameters
from mscam_dask.types.result import ArraysInMemory, Assessment, Borders, Solution, Status
from tests.monitor.records import outer

VIEWS = ("pixels", "edges")


def some_labels(n_samples: int, n_clusters: int) -> NDArray[np.int64]:
    """Clusters of nearly the same size, in random order."""
    return np.random.default_rng(0).permutation(np.arange(n_samples) % n_clusters)


def block_graph(labels: NDArray[np.int64], n_neighbors: int = 4) -> csr_array[np.float64]:
    """Each sample leans on the next ones of its cluster, with equal weights."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    place = np.arange(len(labels)) - np.repeat(starts, sizes)
    size = np.repeat(sizes, sizes)
    rows, columns = [], []
    for step in range(1, n_neighbors + 1):
        rows.append(order)
        columns.append(order[np.repeat(starts, sizes) + (place + step) % size])
    weights = np.full(n_neighbors * len(labels), 1 / n_neighbors)
    pairs = (weights, (np.concatenate(rows), np.concatenate(columns)))
    return csr_array(coo_array(pairs, shape=(len(labels), len(labels))))


def made_up_result(
    labels: NDArray[np.int64], *, views: Sequence[str] = VIEWS, n_iterations: int = 3
) -> Solution:
    """A result with these labels; every embedding is indicators and a little noise."""
    rng = np.random.default_rng(5)
    n_clusters = int(labels.max()) + 1
    first = outer(0, views=tuple(views))
    records = [
        dataclasses.replace(
            first,
            iteration=index,
            n_connected_components=index + 1,
            n_clusters=n_clusters,
            score=1.0 + 0.1 * index,
            view_scores=(1.0,) * len(views),
            views=tuple(dataclasses.replace(view, dual_residual=1e-3) for view in first.views),
        )
        for index in range(n_iterations)
    ]
    indicators = np.eye(n_clusters)[labels]
    return Solution(
        labels=labels,
        arrays=ArraysInMemory(
            consensus_graph=block_graph(labels),
            learned_graph=block_graph(labels),
            view_embeddings={
                view: indicators + 0.05 * rng.standard_normal(indicators.shape) for view in views
            },
            view_coordinates={
                view: rng.standard_normal((len(labels), 4)).astype(np.float32) for view in views
            },
        ),
        n_connected_components=n_clusters,
        status=Status.CONVERGED,
        score=1.2,
        n_neighbors=4,
        view_contributions=dict.fromkeys(views, 1 / len(views)),
        history=tuple(records),
        parameters=Parameters(n_clusters=n_clusters),
        settings=(),
        prepared=(),
        encoders={},
        assessment=made_up_assessment(np.bincount(labels), views) if n_clusters > 1 else None,
    )


def made_up_assessment(sizes: NDArray[np.int64], views: Sequence[str]) -> Assessment:
    """Clusters of which the last two are not separated; of more than two, the first and the last are not near."""
    n_clusters = len(sizes)
    rng = np.random.default_rng(6)
    p_values = np.full((n_clusters, n_clusters), 0.002)
    p_values[-2:, -2:] = 0.4
    counts = np.tile([12, 3, 11], (n_clusters, n_clusters, 1))
    counts[-2, -1], counts[-1, -2] = (20, 18, 17), (17, 18, 20)
    if n_clusters > 2:
        p_values[0, -1] = p_values[-1, 0] = counts[0, -1] = counts[-1, 0] = 0
    p_values[np.diag_indices(n_clusters)] = counts[np.diag_indices(n_clusters)] = 0
    steps = np.arange(n_clusters - 1.0)
    merged = np.where(steps == 0, 0, n_clusters + steps - 1)
    compared = tuple(views[:16])
    return Assessment(
        cluster_names=tuple(range(n_clusters)),
        view_names=compared,
        borders=Borders(p_values, counts, sizes),
        cluster_agreement=rng.uniform(-0.1, 1.0, size=(len(compared), n_clusters)),
        contradictions=np.full((len(compared), n_clusters), -1),
        view_agreement=rng.uniform(-0.1, 1.0, size=(len(compared), len(compared))),
        cluster_tree=np.column_stack((merged, steps + 1, 1.5**steps, steps + 2)),
    )


def made_up_samples(labels: NDArray[np.int64]) -> pd.DataFrame:
    """Confidences, and the cluster after the own one as the next."""
    confidence = np.random.default_rng(7).uniform(0.3, 1.0, len(labels))
    following = (labels + 1) % (int(labels.max()) + 1)
    return pd.DataFrame({"confidence": confidence, "next_cluster": following})


def made_up_content(
    labels: NDArray[np.int64],
    *,
    views: Sequence[str] = VIEWS,
    name: str = "made-up",
    fit: Mapping[str, Any] | None = None,
    **content: Any,
) -> RunContent:
    """The report's content for these labels; `fit` replaces entries of run.json's table."""
    result = made_up_result(labels, views=views)
    n_clusters = result.n_connected_components
    setting = {"scale": "unit", "alpha": 10.0, "n_neighbors": 4}
    tried = {**setting, "n_connected_components": 1, "score": 1.1}
    view = {"view_type": "features", "shape": [len(labels), 7], "dtype": "float64"}
    found = result.assessment
    record = {
        "state": "finished",
        "pipeline": name,
        "method": "mscam",
        "seed": 0,
        "started": "2026-11-21T02:48:03+00:00",
        "ended": "2026-11-21T02:48:21+00:00",
        "executor": "in this process",
        "sources": [{"source": f"{name}.npz", "n_bytes": 9, "sha256": "ab" * 32}],
        "data": {
            "store": "data.zarr",
            "digest": "cd" * 32,
            "n_samples": len(labels),
            "views": [{"name": each, "digest": "ef" * 32, **view} for each in views],
            "n_classes": None,
            "has_sample_ids": content.get("sample_ids") is not None,
            "notes": [f"View {views[0]!r}: 1 of 7 columns has one value only."],
        },
        "fit": {
            "status": result.status.name,
            "message": Status.CONVERGED.message,
            "n_clusters": n_clusters,
            "n_connected_components": n_clusters,
            "n_outer_iterations": 3,
            "score": result.score,
            "setting": setting,
            "candidate_settings": [tried, {**tried, "scale": "standard", "score": 1.0}],
            "selected_setting": 0,
            "assessment": found and {"structure": found.structure.name, "message": found.message},
            "view_contributions": result.view_contributions,
            "cluster_sizes": np.bincount(labels).tolist(),
            "cluster_names": list(range(n_clusters)),
            **(fit or {}),
        },
        "metrics": {
            "accuracy": 0.9871,
            "normalized_mutual_information": 0.9692,
            "adjusted_rand_index": 0.9713,
        }
        if "labels_true" in content
        else None,
        "seconds": {"ingest": 0.2, "cluster": 18.2, "total": 18.7},
        "versions": {"mscam_dask": "0.1.0", "python": "3.13.1"},
    }
    defaults = {"sample_ids": None, "labels_true": None, "label_names": None}
    return RunContent(
        record=msgspec.convert(record, RunRecord),
        result=result,
        settings_text="[data]\nsource = 'made-up.npz'\n",
        files=(FileLink(name="run.json", href="run.json", what="the record"),),
        samples=made_up_samples(labels),
        **{**defaults, **content},
    )


def part_of(page: str, section: str) -> str:
    """HTML of a section."""
    start = page.index(f'<section id="{section}"')
    return page[start : page.index("</section>", start)]


def text_of(page: str, section: str) -> str:
    """Text of a section, with single blanks."""
    return " ".join(re.sub(r"<[^>]+>", " ", part_of(page, section)).split())


class Seen(HTMLParser):
    """Elements, their attributes, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data
