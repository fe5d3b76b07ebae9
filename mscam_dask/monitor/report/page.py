"""HTML page of a run, and the rendering of all pages."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.results import StoredResult
from mscam_dask.monitor.messages import (
    duration,
    format_excluded,
    format_graph,
    format_refinement,
    format_view_settings,
)
from mscam_dask.monitor.palette import CLUSTER_COLORS, sample_property
from mscam_dask.monitor.report import formatting
from mscam_dask.monitor.report.figures import (
    BlockMatrix,
    convergence_charts,
    graph_figure,
    matrix_figure,
    view_figures,
)
from mscam_dask.monitor.report.scatter import DRAW_SEED, Drawing, Scatter, draw_samples
from mscam_dask.monitor.report.sections import drift_section, n_clusters_section, presence_section
from mscam_dask.monitor.report.support import support_section
from mscam_dask.monitor.report.tables import (
    Confidence,
    SampleFacts,
    confusion,
    sample_confidence,
    sample_rows,
    separation_rows,
    size_bars,
)
from mscam_dask.monitor.run_record import RefinementEntry, RunRecord

if TYPE_CHECKING:
    from jinja2 import Environment, Template

__all__ = ["LISTED_SAMPLES", "FileLink", "RunContent", "render", "run_page"]

LISTED_SAMPLES = 200
"""Number of least certain samples that are listed."""

_MAX_NAME = 120
_MAX_SETTINGS = 60
_MAX_COLUMNS = 20
_MAX_PAIRS = 20_000
_MAX_TEXT = 20_000


@dataclass(frozen=True, kw_only=True)
class FileLink:
    """Link of the report to a file of the run.

    Attributes
    ----------
    name
        Text of the link.
    href
        Relative URL, quoted.
    what
        Short description of the content.
    """

    name: str
    href: str
    what: str


@dataclass(frozen=True, kw_only=True, eq=False)
class RunContent:
    """Content of the report of a run with results.

    Attributes
    ----------
    record
        run.json of a run with results.
    result
    settings_text
        Text of pipeline.toml.
    sample_ids
        n ids, or None if samples are identified by row.
    labels_true : (n,) int64 or None
        Ground truth.
    label_names
        Names of the classes 0, 1, ..., or None.
    files
    moved
        Name, previous cluster and cluster of each sample that moved since the previous run.
    notes
        Notes about the report itself.
    membership : (n, c) or None
        Memberships in the clusters, in ascending order of their labels.
    columns
        Properties of the samples by name, with n values each, to color the plots by.
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
    membership: NDArray[np.float64] | None = None
    columns: Mapping[str, NDArray[Any] | Sequence[Any]] = field(default_factory=dict)


def run_page(content: RunContent) -> str:
    """Return the report of a run as one HTML page.

    Parameters
    ----------
    content : RunContent
        Texts in it may come from data and are escaped.

    Returns
    -------
    str
        Self-contained page that loads nothing from the network.
    """
    result = content.result
    confidence = sample_confidence(content.membership, result.labels)
    listed = (
        np.empty(0, dtype=np.int64)
        if confidence is None
        else confidence.least_certain(LISTED_SAMPLES)
    )
    drawing = draw_samples(result.labels, listed)
    in_degree: NDArray[np.float64] = np.asarray(result.consensus_graph.sum(axis=0)).ravel()
    facts = SampleFacts(
        labels=result.labels,
        in_degree=in_degree,
        ids=content.sample_ids,
        labels_true=content.labels_true,
        label_names=content.label_names,
    )
    graph = graph_figure(result, drawing)
    views, n_embedded = view_figures(result, drawing)
    plots = {"graph": graph.plot, **{view.key: view.plot for view in views}}
    bars, bars_cut = size_bars(result.labels)
    fit = content.record.fit
    assert fit is not None
    settings = fit.candidate_settings
    matrix = matrix_figure(result)
    return render(
        _asset("run.html.j2"),
        {
            "content": content,
            "record": content.record,
            "fit": fit,
            "result": result,
            "n_samples": len(result.labels),
            "n_clusters": len(np.unique(result.labels)),
            "drawing": drawing,
            "draw_seed": DRAW_SEED,
            "matrix": matrix,
            "graph": graph,
            "views": views,
            "presence": presence_section(result.view_coordinates),
            "n_embedded": n_embedded,
            "shares": sorted(result.view_contributions.items(), key=lambda pair: -pair[1]),
            "drift": drift_section(content.record.drift, content.moved, content.files),
            "selection": n_clusters_section(fit.n_clusters_curves),
            "bars": bars,
            "bars_cut": bars_cut,
            "separation": separation_rows(matrix.matrix),
            "is_rebuilt": result.learned_graph is not result.consensus_graph,
            "assessed": support_section(result.assessment),
            "charts": convergence_charts(result, fit.n_clusters),
            "settings": [
                {
                    **candidate,
                    "by_view": format_view_settings(candidate.get("view_settings", ())),
                    "excluded": format_excluded(candidate.get("exclude_views", ())).strip("; "),
                }
                for candidate in settings[:_MAX_SETTINGS]
            ],
            "n_settings": len(settings),
            "selected": fit.selected_setting,
            "refinement": _refinement(fit.refinement),
            "confusion": None
            if content.labels_true is None
            else confusion(content.labels_true, result.labels, content.label_names),
            "samples": ()
            if confidence is None
            else sample_rows(listed, confidence, facts, drawing.rows),
            "settings_text": content.settings_text[:_MAX_TEXT],
            "settings_cut": len(content.settings_text) > _MAX_TEXT,
            "payload": {
                **_payload(plots, drawing, facts, confidence),
                "columns": _columns(content, drawing, confidence),
                "palette": CLUSTER_COLORS,
                "pairs": _pairs(matrix.matrix),
                "between": matrix.between,
                "blocks": matrix.matrix.clusters.tolist() if matrix.between else [],
                "sizes": matrix.matrix.sizes.tolist() if matrix.between else [],
            },
        },
    )


def _refinement(refinement: RefinementEntry | None) -> str:
    if refinement is None:
        return ""
    return format_refinement(refinement.scores, refinement.n_accepted)


def _payload(
    plots: dict[str, Scatter],
    drawing: Drawing,
    facts: SampleFacts,
    confidence: Confidence | None,
) -> dict[str, Any]:
    """Data for the script: names of the drawn samples and their positions in every plot."""
    rows = drawing.rows.tolist()
    values = [] if confidence is None else confidence.values[drawing.rows].tolist()
    following = [] if confidence is None else confidence.next_cluster[drawing.rows].tolist()
    return {
        "names": [facts.name(row)[:_MAX_NAME] for row in rows],
        "clusters": facts.labels[drawing.rows].tolist(),
        "labels": [facts.label(row)[:_MAX_NAME] for row in rows]
        if facts.labels_true is not None
        else [],
        "confidence": [round(value, 4) for value in values],
        "next": following,
        "plots": {
            key: {"planes": plot.planes, "frames": plot.frames, "names": plot.plane_names}
            for key, plot in plots.items()
        },
    }


def _columns(
    content: RunContent, drawing: Drawing, confidence: Confidence | None
) -> list[dict[str, Any]]:
    """Properties of the drawn samples to color them by: class, confidence, and own columns."""
    known: dict[str, Any] = {}
    if content.labels_true is not None:
        names = content.label_names
        truth = content.labels_true.tolist()
        known["class"] = truth if names is None else [names[code] for code in truth]
    if confidence is not None:
        known["confidence"] = confidence.values
    own = list(content.columns.items())[:_MAX_COLUMNS]
    columns = []
    for name, values in [*known.items(), *own]:
        found = sample_property(values)
        drawn = found.values[drawing.rows].tolist()
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


def render(template: str, context: dict[str, Any]) -> str:
    """Fill the text of a template, including its style and script.

    The content security policy of the page lists their digests, so that a browser refuses all
    other styles and scripts, and every request.
    """
    style = _cluster_css() + _asset("report.css")
    script = _asset("report.js") + _asset("export.js")
    return _compiled(template).render(
        **context,
        style=style,
        script=script,
        style_digest=_digest(style),
        script_digest=_digest(script),
    )


@cache
def _compiled(template: str) -> Template:
    """Compiled template, kept for the process: compiling takes longer than the rest of a small report."""
    return _environment().from_string(template)


def _cluster_css() -> str:
    """Rules for the classes k0, k1, ... of clusters and views."""
    variables = "".join(f"--c{index}:{color};" for index, color in enumerate(CLUSTER_COLORS))
    rules = (f".k{i},.key .k{i} svg{{color:var(--c{i})}}" for i in range(len(CLUSTER_COLORS)))
    return f":root{{{variables}}}\n{''.join(rules)}\n"


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["n_colors"] = len(CLUSTER_COLORS)
    environment.filters.update(
        count=formatting.count,
        number=formatting.number,
        percent=formatting.percent,
        precise=_precise,
        duration=duration,
        sentence=formatting.sentence,
        moment=formatting.moment,
        graph=format_graph,
        json_text=_json_text,
        short=_short,
    )
    environment.globals.update(plural=formatting.plural, zip=zip)
    return environment


def _json_text(value: Any) -> Any:
    """JSON that cannot close the HTML element around it."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for char, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(char, code)
    return Markup(text)


def _precise(value: float) -> str:
    """Number with the digits that a table for programs has."""
    return f"{value:.12g}"


def _short(text: str, limit: int = _MAX_NAME) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
