"""Draw the pictures of docs/plots.md.

    python docs/figures/plots.py

The data are the handwritten digits that scikit-learn brings, in three views; experiments take its tables, in
groups of columns, and mixtures.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn import datasets

from mscam_dask import MSCAM, plot
from mscam_dask.data.datasets import digits_views

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from mscam_dask.data.views.multi_view import MultiViewData

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
        "presence": plot.presence(MSCAM(n_clusters=10).fit(with_gaps(data))),
    }


def with_gaps(data: MultiViewData) -> dict[str, NDArray[np.float64]]:
    """Views of which other samples are absent."""
    rng = np.random.default_rng(0)
    has = rng.random((data.n_samples, len(data.views))) > 0.2
    has[~has.any(axis=1), 0] = True
    return {
        view.name: np.where(own[:, None], view.read(0, data.n_samples), np.nan)
        for view, own in zip(data.views, has.T, strict=True)
    }


_METHODS = 'methods = ["sc-concat", "coreg", "mlan", "lmvsc", "knn-sc", "mscam"]\nseed = 0\n'
_RATES = "corruption_rate = [0.0, 0.2, 0.4, 0.6, 0.8]\nn_samples = 200\nruns = 2\n"


def experiments(folder: Path) -> dict[str, Axes]:
    """Run a comparison and a robustness experiment, and draw them."""
    tables = {
        "iris": datasets.load_iris(),
        "wine": datasets.load_wine(),
        "breast-cancer": datasets.load_breast_cancer(),
        "digits": datasets.load_digits(),
    }
    for name, table in tables.items():
        groups = np.array_split(table.data[:300], 3, axis=1)
        views = {f"view_{index}": group for index, group in enumerate(groups)}
        np.savez(folder / f"{name}.npz", allow_pickle=False, labels=table.target[:300], **views)
    (folder / "ranks.toml").write_text(
        f"[compare]\ndatasets = {list(tables)}\ndirectory = '{folder}'\n{_METHODS}runs = 1\n",
        encoding="utf-8",
    )
    (folder / "robustness.toml").write_text(f"[robustness]\n{_METHODS}{_RATES}", encoding="utf-8")
    for name in ("ranks", "robustness"):
        arguments = ["compare", str(folder / f"{name}.toml"), "-o", str(folder / name)]
        subprocess.run([sys.executable, "-m", "mscam_dask.cli", *arguments], check=True)
    return {
        "ranks": plot.ranks(folder / "ranks"),
        "robustness": plot.robustness(folder / "robustness"),
    }


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = {**pictures(), **experiments(Path(folder))}
    for name, ax in drawn.items():
        figure = ax.get_figure(root=True)
        assert figure is not None
        figure.savefig(HERE / f"plot-{name}.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
