"""HTML pages: the report of a run, from its content."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.monitor.messages import (
    by_view_words,
    learning_sentence,
    neighbors_words,
    without_words,
)
from mscam_dask.monitor.report import formatting as wording
from mscam_dask.monitor.report.confidence import Confidence, embedding_confidence
from mscam_dask.monitor.report.content import RunContent
from mscam_dask.monitor.report.drift import drift_section
from mscam_dask.monitor.report.figures import (
    convergence_charts,
    graph_figure,
    matrix_figure,
    view_figures,
)
from mscam_dask.monitor.report.n_clusters import count_section
from mscam_dask.monitor.report.scatter import Scatter
from mscam_dask.monitor.report.subsample import DRAW_SEED, Drawing, draw_samples
from mscam_dask.monitor.report.tables import (
    SampleFacts,
    confusion,
    sample_rows,
    size_bars,
)

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["LISTED_SAMPLES", "render", "run_page"]

LISTED_SAMPLES = 200
"""Least certain samples that are listed."""

_LONGEST_NAME = 120
_SETTINGS_LIMIT = 60
_TEXT_LIMIT = 20_000


def run_page(content: RunContent) -> str:
    """Return the report of a run as one HTML page.

    Parameters
    ----------
    content : RunContent
        Every text in it may come from data; none is trusted.

    Returns
    -------
    str
        Complete in itself: no script, style, font or picture is loaded from anywhere.
    """
    result = content.result
    confidence = embedding_confidence(
        result.view_embeddings, result.view_contributions, result.labels
    )
    listed = (
        np.empty(0, dtype=np.int64)
        if confidence is None
        else confidence.least_certain(LISTED_SAMPLES)
    )
    drawing = draw_samples(result.labels, listed)
    incoming: NDArray[np.float64] = np.asarray(result.consensus_graph.sum(axis=0)).ravel()
    facts = SampleFacts(
        labels=result.labels,
        incoming=incoming,
        ids=content.sample_ids,
        labels_true=content.labels_true,
        label_names=content.label_names,
    )
    graph = graph_figure(result, drawing)
    views, n_embedded = view_figures(result, drawing)
    plots = {"graph": graph.plot, **{view.key: view.plot for view in views}}
    bars, bars_cut = size_bars(result.labels)
    settings = content.record["fit"]["candidate_settings"]
    matrix = matrix_figure(result)
    counted = count_section(content.record["fit"].get("n_clusters_curves"))
    return render(
        "run.html.j2",
        {
            "content": content,
            "record": content.record,
            "fit": content.record["fit"],
            "result": result,
            "n_samples": len(result.labels),
            "n_found": len(np.unique(result.labels)),
            "drawing": drawing,
            "draw_seed": DRAW_SEED,
            "matrix": matrix,
            "graph": graph,
            "views": views,
            "n_embedded": n_embedded,
            "shares": sorted(result.view_contributions.items(), key=lambda pair: -pair[1]),
            "drift": drift_section(content.record.get("drift"), content.moved, content.files),
            "counted": counted,
            "bars": bars,
            "bars_cut": bars_cut,
            "charts": convergence_charts(
                result,
                content.record["fit"]["n_clusters"],
                how="asked for" if counted is None else "chosen",
            ),
            "settings": [
                {
                    **tried,
                    "by_view": by_view_words(tried.get("view_settings", ())),
                    "without": without_words(tried.get("exclude_views", ())),
                }
                for tried in settings[:_SETTINGS_LIMIT]
            ],
            "n_settings": len(settings),
            "chosen": content.record["fit"]["selected_setting"],
            "learned": _learned(content.record["fit"]["refinement"]),
            "confusion": None
            if content.labels_true is None
            else confusion(content.labels_true, result.labels, content.label_names),
            "samples": ()
            if confidence is None
            else sample_rows(listed, confidence, facts, drawing.rows),
            "settings_text": content.settings_text[:_TEXT_LIMIT],
            "settings_cut": len(content.settings_text) > _TEXT_LIMIT,
            "payload": {
                **_payload(plots, drawing, facts, confidence),
                "between": matrix.between,
                "blocks": matrix.matrix.clusters.tolist() if matrix.between else [],
                "sizes": matrix.matrix.sizes.tolist() if matrix.between else [],
            },
        },
    )


def _learned(refinement: Mapping[str, Any] | None) -> str:
    """What distances learned from the best partition gave, in words; empty where none were."""
    if refinement is None:
        return ""
    return learning_sentence(refinement["scores"], refinement["n_accepted"])


def _payload(
    plots: dict[str, Scatter],
    drawing: Drawing,
    facts: SampleFacts,
    confidence: Confidence | None,
) -> dict[str, Any]:
    """What the script needs: names of the drawn samples and their places in every plot."""
    rows = drawing.rows.tolist()
    ratios = [] if confidence is None else confidence.distance_ratio[drawing.rows].tolist()
    following = [] if confidence is None else confidence.next_cluster[drawing.rows].tolist()
    return {
        "names": [facts.name(row)[:_LONGEST_NAME] for row in rows],
        "clusters": facts.labels[drawing.rows].tolist(),
        "labels": [facts.label(row)[:_LONGEST_NAME] for row in rows]
        if facts.labels_true is not None
        else [],
        "ratios": [wording.number(ratio, 3) for ratio in ratios],
        "next": following,
        "plots": {
            key: {"planes": plot.planes, "names": plot.plane_names} for key, plot in plots.items()
        },
    }


def render(template: str, context: dict[str, Any]) -> str:
    """Fill a template; style and script are put in, and nothing else may run on the page.

    The page's content security policy names the digests of the two, so that a browser refuses
    any other style or script, and every request.
    """
    style, script = _asset("report.css"), _asset("report.js")
    return (
        _environment()
        .get_template(template)
        .render(
            **context,
            style=style,
            script=script,
            style_digest=_digest(style),
            script_digest=_digest(script),
        )
    )


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
    environment.filters.update(
        count=wording.count,
        number=wording.number,
        percent=wording.percent,
        time_span=wording.time_span,
        sentence=wording.sentence,
        moment=wording.moment,
        neighbors=neighbors_words,
        json_text=_json_text,
        short=_short,
    )
    environment.globals.update(plural=wording.plural, zip=zip)
    return environment


def _json_text(value: Any) -> Any:
    """JSON that cannot end the element it stands in."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for char, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(char, code)
    return Markup(text)


def _short(text: str, limit: int = _LONGEST_NAME) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
