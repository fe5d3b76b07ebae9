"""HTML page of a run, and the rendering of all pages."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredResult
from mscam_dask.monitor.report.figures import (
    BlockMatrix,
    block_matrix,
    convergence_charts,
    scatter,
    view_figures,
)
from mscam_dask.monitor.report.tables import (
    batches,
    cluster_sizes,
    confusion,
    drift_section,
    n_clusters_section,
    presence,
    separation_rows,
    support,
)
from mscam_dask.monitor.run_record import RunRecord
from mscam_dask.monitor.templates import template
from mscam_dask.plot.pictures import CLUSTER_COLORS, sample_property
from mscam_dask.plot.places import (
    DRAW_LIMIT,
    DRAW_SEED,
    contracted_graph,
    draw_samples,
    graph_layout,
)

if TYPE_CHECKING:
    import pandas as pd

_MAX_LISTED = 200  # least certain samples
_MAX_NAME = 120
_MAX_COLUMNS = 20
_MAX_PAIRS = 20_000


@dataclass(frozen=True, kw_only=True)
class FileLink:
    """Link of the report to a file of the run: its text, its relative URL, quoted, and what the file has."""

    name: str
    href: str
    what: str


@dataclass(frozen=True, kw_only=True, eq=False)
class RunContent:
    """Content of the report of a run with results.

    `sample_ids` is None if samples are identified by row; `labels_true` (n,) are codes of `label_names`; `moved` are
    name, previous cluster and cluster; `samples` has the columns confidence and next_cluster, `columns` properties of n values.
    """

    record: RunRecord
    result: StoredResult
    settings_text: str
    sample_ids: Sequence[str] | None
    labels_true: NDArray[np.int64] | None
    label_names: Sequence[str] | None
    files: tuple[FileLink, ...]
    moved: Sequence[tuple[str, int, int]] = ()
    notes: tuple[str, ...] = ()
    samples: pd.DataFrame | None = None
    columns: Mapping[str, NDArray[Any] | Sequence[Any]] = field(default_factory=dict)

    def name(self, row: int) -> str:
        """Id of a sample, or its row."""
        return str(row) if self.sample_ids is None else self.sample_ids[row]

    def label(self, row: int) -> str:
        """Class of a sample, or an empty text."""
        if self.labels_true is None:
            return ""
        code = self.labels_true[row]
        return str(code) if self.label_names is None else self.label_names[code]


def run_page(content: RunContent) -> str:
    """Return the report of a run as one HTML page, which loads nothing from the network; texts are escaped."""
    result, fit = content.result, content.record.fit
    assert fit is not None
    labels = result.labels
    matrix = block_matrix(result.learned_graph, labels)
    samples = content.samples if len(matrix.clusters) > 1 else None
    listed = None
    if samples is not None:
        listed = np.argsort(samples["confidence"].to_numpy(), kind="stable")[:_MAX_LISTED]
    rows = draw_samples(labels, listed=listed)
    drawn = contracted_graph(result.learned_graph, rows)
    graph, views = scatter([graph_layout(drawn)], labels[rows], drawn), view_figures(result, rows)
    in_degree: NDArray[np.float64] = np.asarray(result.consensus_graph.sum(axis=0)).ravel()
    points = {row: point for point, row in enumerate(rows.tolist())}
    columns = _columns(content, rows, samples)
    return render(
        "monitor/report/assets/run.html.j2",
        {
            "content": content,
            "record": content.record,
            "fit": fit,
            "result": result,
            "n_samples": len(labels),
            "n_clusters": len(matrix.clusters),
            "n_drawn": len(rows),
            "n_random": min(len(labels), DRAW_LIMIT),
            "draw_seed": DRAW_SEED,
            "matrix": matrix,
            "graph": graph,
            "views": views,
            "presence": presence(result.view_coordinates),
            "shares": sorted(result.view_contributions.items(), key=lambda pair: -pair[1]),
            "drift": drift_section(content.record.drift, content.moved),
            "moved_link": next((file for file in content.files if file.name == "moved.csv"), None),
            "selection": n_clusters_section(fit.n_clusters_curves),
            "sizes": cluster_sizes(labels),
            "separation": separation_rows(matrix),
            "is_rebuilt": result.learned_graph is not result.consensus_graph,
            "assessed": support(result.assessment),
            "batches": batches(fit),
            "charts": convergence_charts(result, fit.n_clusters),
            "confusion": None
            if content.labels_true is None
            else confusion(content.labels_true, labels, content.label_names),
            "samples": samples,
            "listed": []
            if listed is None
            else [(row, points.get(row, -1)) for row in listed.tolist()],
            "in_degree": in_degree,
            "columns": columns,
            "payload": {
                "names": [content.name(row)[:_MAX_NAME] for row in rows],
                "labels": [content.label(row)[:_MAX_NAME] for row in rows]
                if content.labels_true is not None
                else [],
                "clusters": labels[rows].tolist(),
                "next": [] if samples is None else samples["next_cluster"].iloc[rows].tolist(),
                "plots": {
                    key: {"planes": plot.planes, "frames": plot.frames, "names": plot.names}
                    for key, plot in [("graph", graph), *((key, plot) for key, _, plot in views)]
                },
                "columns": columns,
                "palette": CLUSTER_COLORS,
                "pairs": _pairs(matrix),
                "blocks": matrix.clusters.tolist() if matrix.is_small else [],
                "sizes": matrix.sizes.tolist(),
            },
        },
    )


def _columns(
    content: RunContent, rows: NDArray[np.int64], samples: pd.DataFrame | None
) -> list[dict[str, Any]]:
    """Properties of the drawn samples to color them by: class, confidence, and own columns."""
    known: dict[str, Any] = {}
    if content.labels_true is not None:
        names = content.label_names
        truth = content.labels_true.tolist()
        known["class"] = truth if names is None else [names[code] for code in truth]
    if samples is not None:
        known["confidence"] = samples["confidence"]
    columns = []
    for name, values in [*known.items(), *list(content.columns.items())[:_MAX_COLUMNS]]:
        found = sample_property(values)
        drawn = found.values[rows].tolist()
        columns.append(
            {
                "name": name[:_MAX_NAME],
                "categories": found.categories
                and [category[:_MAX_NAME] for category in found.categories],
                "values": [
                    float(f"{value:.6g}") if math.isfinite(value) else None for value in drawn
                ],
            }
        )
    return columns


def _pairs(matrix: BlockMatrix) -> list[list[float]]:
    """Two clusters and the weight between them, of the pairs with the largest weight."""
    entries = matrix.between.tocoo()
    first, second = entries.coords
    upper = np.flatnonzero(first <= second)
    heaviest = np.sort(upper[np.argsort(-entries.data[upper], kind="stable")[:_MAX_PAIRS]])
    names = matrix.clusters
    return [
        [int(names[i]), int(names[j]), float(f"{weight:.6g}")]
        for i, j, weight in zip(
            first[heaviest], second[heaviest], entries.data[heaviest], strict=True
        )
    ]


def render(path: str, context: dict[str, Any]) -> str:
    """Fill a template; the content security policy of the page allows its own style and script only."""
    style = _cluster_css() + _asset("report.css")
    script = _asset("report.js") + _asset("export.js")
    return template(path).render(
        **context,
        style=style,
        script=script,
        style_digest=_digest(style),
        script_digest=_digest(script),
        n_colors=len(CLUSTER_COLORS),
    )


def _cluster_css() -> str:
    """Rules for the classes k0, k1, ... of clusters and views."""
    variables = "".join(f"--c{index}:{color};" for index, color in enumerate(CLUSTER_COLORS))
    rules = (f".k{i},.key .k{i} svg{{color:var(--c{i})}}" for i in range(len(CLUSTER_COLORS)))
    return f":root{{{variables}}}\n{''.join(rules)}\n"


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
