"""Draw the pictures of docs/plots.md.

    pip install '.[plot]' && python docs/figures/plots.py

The data are the handwritten digits that scikit-learn brings, in three views.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mscam_dask import MSCAM, plot
from mscam_dask.data.datasets import digits_views

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).parent


def pictures() -> dict[str, Axes]:
    """Fit the digits and draw each picture, by name."""
    data = digits_views()
    assert data.labels is not None
    model = MSCAM(n_clusters=10).fit(data)
    counted = MSCAM(n_clusters="auto", max_clusters=20).fit(data)
    (cluster,) = np.unique(model.labels_[data.labels == 7][:1])
    return {
        "graph": plot.graph(model),
        "graph-confidence": plot.graph(model, color=model.confidence_),
        "embedding": plot.embedding(model, data.view_names[0]),
        "confusion": plot.confusion(model, data.labels),
        "contributions": plot.contributions(model),
        "history": plot.history(model, quantity="view_score"),
        "n-clusters": plot.n_clusters_curves(counted),
        "features": plot.features(model, int(cluster)),
        "confidence": plot.confidence(model),
    }


def main() -> None:
    """Write the pictures."""
    for name, ax in pictures().items():
        figure = ax.get_figure(root=True)
        assert figure is not None
        figure.savefig(HERE / f"plot-{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
