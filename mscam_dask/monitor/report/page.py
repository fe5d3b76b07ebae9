"""HTML page of a run: its sections, from the record and the result of the run, and the rendering of all pages."""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.cluster import contingency_matrix

from mscam_dask.monitor.messages import format_n_clusters, number, p_value_text, template
from mscam_dask.monitor.report.figures import (
    BlockMatrix,
    block_matrix,
    chart_axes,
    cluster_tree,
    convergence_charts,
    line_chart,
    scatter,
    view_figures,
)
from mscam_dask.monitor.run_record import DriftRecord, FitRecord, RunRecord
from mscam_dask.plot.pictures import (
    CLUSTER_COLORS,
    DRAW_LIMIT,
    DRAW_SEED,
    LEAST_P_VALUE,
    best_order,
    contracted_graph,
    draw_p_values,
    draw_samples,
    graph_layout,
    sample_property,
)
from mscam_dask.types.result import Assessment, Borders, Solution
from mscam_dask.types.rules import RULES

if TYPE_CHECKING:
    import pandas as pd

_MAX_LISTED = 200  # least certain samples
_MAX_NAME = 120
_MAX_COLUMNS = 20
_MAX_PAIRS = 20_000
_MAX_TABLE = 40
_MAX_CLUSTERS = 60
_MAX_SAMPLES = 40
_MAX_MOVES = 20
_MAX_BORDERS = 20  # clusters with a table of all borders
_MAX_TOUCHING = 3  # clusters that are listed beside each cluster
_MAX_PATTERNS = 20


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
    result: Solution
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
        numbers, categories = sample_property(values)
        columns.append(
            {
                "name": name[:_MAX_NAME],
                "categories": categories and [category[:_MAX_NAME] for category in categories],
                "values": [
                    float(f"{value:.6g}") if math.isfinite(value) else None
                    for value in numbers[rows].tolist()
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


# contents of the sections ------------------------------------------------------------------------


def n_clusters_section(curves: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Why this number was selected, a chart and rows of the p-values; None if it was given."""
    if curves is None:
        return None
    counts, selected = [int(value) for value in curves["counts"]], int(curves["n_clusters"])
    p_values = dict(zip(counts, curves["p_values"], strict=True))
    advice = "Set n_clusters to look at a number."
    if selected > 1:
        advice = "Overlapping clusters count as one: set n_clusters if it is known."
    why = f"{format_n_clusters(counts, curves['p_values'], selected)}. {advice}"
    ax = chart_axes()
    chart = line_chart(
        "count-p-values",
        ax,
        draw_p_values(ax, counts, list(p_values.values()), selected),
        title="Largest p-value of the borders",
        caption="Each point is the best of several partitions into that many clusters. All of its borders hold if it is "
        f"not above the dashed line. Values below {number(LEAST_P_VALUE)} are drawn there.",
    )
    marks = {n: "all borders hold" for n, value in p_values.items() if value <= RULES.level}
    marks[selected] = "selected"
    rows = [(n, p_value_text(value), marks.get(n, "")) for n, value in p_values.items()]
    return {"highest": counts[-1], "why": why, "chart": chart, "rows": rows}


def drift_section(
    drift: DriftRecord | None, moved: Sequence[tuple[str, int, int]]
) -> dict[str, Any] | None:
    """Start of the run, sizes of clusters before and after, and lines of moved.csv; None for a first run."""
    if drift is None:
        return None
    how = "Views and settings are the same, so its clusters were reused."
    if drift.start == "cold":
        how = f"The fit did not start from it: {drift.reason.rstrip('.')}."
    sizes = list(zip(drift.cluster_names, drift.sizes_before, drift.sizes_after, strict=True))
    if len(sizes) > _MAX_CLUSTERS:
        sizes.sort(key=lambda row: -abs(row[2] - row[1]))
    return {
        "how": how,
        "n_sizes": len(sizes),
        "sizes": sizes[:_MAX_CLUSTERS],
        "moves": Counter((old, new) for _, old, new in moved).most_common(_MAX_MOVES),
        "moved": moved[:_MAX_SAMPLES],
    }


def confusion(
    labels_true: NDArray[np.int64], labels: NDArray[np.int64], names: Sequence[str] | None
) -> dict[str, Any]:
    """Samples of the largest classes in the largest clusters, in the order of the best assignment, which is marked."""
    classes, clusters = np.unique(labels_true), np.unique(labels)
    counts = contingency_matrix(labels_true, labels, sparse=True)
    totals, sizes = (np.asarray(counts.sum(axis=axis)).ravel() for axis in (1, 0))
    kept_rows, kept_columns = (
        np.sort(np.argsort(-each, kind="stable")[:_MAX_TABLE]) for each in (totals, sizes)
    )
    part = counts[kept_rows][:, kept_columns].toarray()
    order, matched = best_order(part)
    return {
        "clusters": clusters[kept_columns[order]].tolist(),
        "rows": [
            (
                str(classes[row]) if names is None else names[classes[row]],
                int(totals[row]),
                [(int(part[index, j]), matched.get(index) == j) for j in order],
            )
            for index, row in enumerate(kept_rows)
        ],
        "shape": (len(classes), len(clusters)),
        "n_hidden": len(labels) - int(part.sum()),
    }


def cluster_sizes(labels: NDArray[np.int64]) -> tuple[list[tuple[int, int]], list[int]]:
    """Clusters and their samples, the largest first, and the samples of the clusters that are not shown."""
    names, sizes = np.unique(labels, return_counts=True)
    order = np.argsort(-sizes, kind="stable")
    shown = order[:_MAX_CLUSTERS]
    pairs = list(zip(names[shown].tolist(), sizes[shown].tolist(), strict=True))
    return pairs, sizes[order[_MAX_CLUSTERS:]].tolist()


def separation_rows(matrix: BlockMatrix) -> list[tuple[int, int, float, list[tuple[int, float]]]]:
    """Cluster, samples, share of the weight that leaves it (largest first), and the clusters that most of it goes to."""
    from scipy.sparse import diags_array

    between = matrix.between
    totals: NDArray[np.float64] = np.asarray(between.sum(axis=1)).ravel()
    off_diagonal = (between - diags_array(between.diagonal())).tocsr()
    off_diagonal.eliminate_zeros()
    leaving: NDArray[np.float64] = np.asarray(off_diagonal.sum(axis=1)).ravel()
    shares = np.divide(leaving, totals, out=np.zeros_like(leaving), where=totals > 0)
    rows = []
    for row in np.argsort(-shares, kind="stable")[:_MAX_TABLE]:
        if shares[row] > 0:
            start, stop = off_diagonal.indptr[row : row + 2]
            others, weights = off_diagonal.indices[start:stop], off_diagonal.data[start:stop]
            heaviest = np.argsort(-weights, kind="stable")[:_MAX_TOUCHING]
            touching = [
                (int(matrix.clusters[others[at]]), float(weights[at] / totals[row]))
                for at in heaviest
            ]
            name, size = int(matrix.clusters[row]), int(matrix.sizes[row])
            rows.append((name, size, float(shares[row]), touching))
    return rows


def presence(by_view: dict[str, NDArray[Any]]) -> dict[str, Any] | None:
    """Samples by the set of views that have them, the most frequent first; None if every view (n, m) has all."""
    if not by_view:
        return None
    table = np.stack([~np.isnan(values).all(axis=1) for values in by_view.values()], axis=1)
    if table.all():
        return None
    found, counts = np.unique(table, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shown, hidden = order[:_MAX_PATTERNS], order[_MAX_PATTERNS:]
    return {
        "views": dict(zip(by_view, table.sum(axis=0).tolist(), strict=True)),
        "patterns": [(int(counts[row]), found[row].tolist()) for row in shown],
        "n_hidden": (len(hidden), int(counts[hidden].sum())),
    }


def batches(fit: FitRecord) -> dict[str, Any] | None:
    """Samples of each cluster by batch, clusters of one batch, and the shares of batches by view; None without."""
    entry = fit.batches
    if entry is None:
        return None
    rows = list(zip(fit.cluster_names, entry.counts, strict=True))
    alone = [
        (cluster, entry.names[int(np.argmax(counts))])
        for cluster, counts in rows
        if np.count_nonzero(counts) == 1
    ]
    return {
        "names": entry.names[:_MAX_TABLE],
        "n_batches": len(entry.names),
        "message": entry.message,
        "rows": [(name, counts[:_MAX_TABLE], sum(counts)) for name, counts in rows[:_MAX_CLUSTERS]],
        "alone": alone if len(entry.names) > 1 else [],
        "shares": list(entry.shares.items()),
    }


def support(assessment: Assessment | None) -> dict[str, Any] | None:
    """Borders of each cluster, agreement of the views, and the tree; None where nothing was assessed."""
    if assessment is None:
        return None
    names, borders = assessment.cluster_names, assessment.borders
    views = assessment.view_names
    others = assessment.contradictions
    return {
        "views": views,
        "contradicted": [names[other] for other in np.unique(others[others >= 0])],
        "names": names,
        "clusters": [] if borders is None else _cluster_rows(assessment, borders),
        "borders": []
        if borders is None or len(names) > _MAX_BORDERS
        else _border_rows(names, borders),
        "pairs": list(zip(views, assessment.view_agreement.tolist(), strict=True))
        if len(views) > 1
        else [],
        "tree": cluster_tree(assessment.cluster_tree, names)
        if 2 < len(names) <= _MAX_CLUSTERS
        else None,
        "n_compared": 0 if borders is None else int(borders.sizes.sum()),
    }


def _has_border(borders: Borders) -> NDArray[np.bool_]:
    return np.asarray(borders.counts.any(axis=2) | (borders.p_values > 0.0))


def _cluster_rows(assessment: Assessment, borders: Borders) -> list[dict[str, Any]]:
    """Borders of each cluster, that with the largest p-value first."""
    names, p_values, has_border = assessment.cluster_names, borders.p_values, _has_border(borders)
    rows = []
    for k in np.argsort(-p_values.max(axis=1), kind="stable")[:_MAX_CLUSTERS]:
        order = np.argsort(-p_values[k], kind="stable")
        # of equal p-values, that of the border with the most samples
        weakest = int(np.lexsort((borders.counts[k].sum(axis=1), p_values[k]))[-1])
        rows.append(
            {
                "cluster": names[k],
                "samples": int(borders.sizes[k]),
                "touching": [names[j] for j in order if p_values[k, j] > RULES.level],
                "weakest": names[weakest] if has_border[k, weakest] else None,
                "p_value": float(p_values[k, weakest]),
                "counts": borders.counts[k, weakest].tolist(),
                "views": [
                    (float(agreement), None if other < 0 else names[other])
                    for agreement, other in zip(
                        assessment.cluster_agreement[:, k],
                        assessment.contradictions[:, k],
                        strict=True,
                    )
                ],
            }
        )
    return rows


def _border_rows(
    names: tuple[int, ...], borders: Borders
) -> list[tuple[int, list[tuple[float, list[int]] | None]]]:
    """Each cluster with the p-value and the counts of its border with each cluster; None without a border."""
    has_border = _has_border(borders)
    return [
        (
            name,
            [
                (float(borders.p_values[i, j]), borders.counts[i, j].tolist())
                if has_border[i, j]
                else None
                for j in range(len(names))
            ],
        )
        for i, name in enumerate(names)
    ]
