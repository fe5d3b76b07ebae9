"""Draw docs/figures/overview.png: what each view knows, and what the consensus graph knows.

    pip install . pillow && python docs/figures/overview.py

Every panel is an n x n graph with the samples in the order of the clusters found, one pixel for a
few samples; the last is the consensus graph, whose blocks are the clusters.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy.sparse import csr_array

from mscam_dask import MSCAM
from mscam_dask.data.datasets import digits_views
from mscam_dask.solvers.partition_score import reference_graphs
from mscam_dask.solvers.row_blocks import ViewShape

SIZE, GAP, TOP = 225, 18, 46
INK, PAPER, TEXT, SOFT = (0, 63, 122), (255, 255, 255), (20, 20, 20), (110, 110, 110)
ACCENT = (190, 70, 0)


def panel(graph: csr_array, order: NDArray[np.intp], ink: tuple[int, int, int]) -> Image.Image:
    """The graph as a picture, darker where there are more edges."""
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order)) * SIZE // len(order)
    edges = graph.tocoo()
    counts = np.zeros((SIZE, SIZE))
    np.add.at(counts, (position[edges.row], position[edges.col]), edges.data)
    shade = np.minimum(1.0, 1.6 * counts / np.quantile(counts[counts > 0], 0.9))[..., None] ** 0.6
    pixels = (1 - shade) * np.array(PAPER) + shade * np.array(ink)
    return Image.fromarray(pixels.astype(np.uint8))


def main() -> None:
    """Fit the digits and draw the graphs."""
    data = digits_views()
    model = MSCAM(n_clusters=10).fit(data)
    order = np.argsort(model.labels_, kind="stable")
    shapes = [ViewShape(*view.shape, view.view_type) for view in data.views]
    graphs = [
        reference_graphs(view.read, shape, 9).graphs[1]
        for view, shape in zip(data.views, shapes, strict=True)
    ]
    columns = len(graphs) + 1
    width = columns * SIZE + (columns + 1) * GAP
    sheet = Image.new("RGB", (width, TOP + SIZE + GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    large, small = ImageFont.load_default(18), ImageFont.load_default(13)
    shares = model.view_contributions_
    titles = [(name, f"contributes {shares[name]:.0%}") for name in data.view_names]
    titles.append(("consensus graph A", f"{model.n_connected_components_} connected components"))
    for index, (title, graph) in enumerate(
        zip(titles, [*graphs, model.consensus_graph_], strict=True)
    ):
        left = GAP + index * (SIZE + GAP)
        last = index == len(graphs)
        draw.text((left, 4), title[0], fill=ACCENT if last else TEXT, font=large)
        draw.text((left, 26), title[1], fill=SOFT, font=small)
        sheet.paste(panel(graph, order, ACCENT if last else INK), (left, TOP))
        draw.rectangle((left - 1, TOP - 1, left + SIZE, TOP + SIZE), outline=(200, 200, 200))
    sheet.save(Path(__file__).with_name("overview.png"), optimize=True)


if __name__ == "__main__":
    main()
