"""The synthetic experiment of the paper (Table 2): a Gaussian mixture, part of it corrupted.

The paper says: three views, two clusters, 1000 samples, of which 0 to 90 % in each view are
corrupted by Gaussian noise of variance 0.3 ‖x‖₂. It gives neither means nor covariances; those
here are our choice, after Kumar & Daumé's two-view mixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.errors import ConfigurationError

__all__ = ["CORRUPTED_SHARES", "MIXTURE", "GaussianMixture", "corrupted_mixture"]

Array = NDArray[np.float64]

CORRUPTED_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the samples that the paper's Table 2 corrupts."""


@dataclass(frozen=True)
class GaussianMixture:
    """Means and covariances of each cluster in each view.

    Attributes
    ----------
    means : V tuples of c tuples of d numbers
        means[v][g] is the center of cluster g in view v.
    covariances : V tuples of c (d, d) nested tuples
        Symmetric positive definite.

    Raises
    ------
    ConfigurationError
        When shapes do not fit each other, or a covariance is no covariance.
    """

    means: tuple[tuple[tuple[float, ...], ...], ...]
    covariances: tuple[tuple[tuple[tuple[float, ...], ...], ...], ...]

    def __post_init__(self) -> None:
        means = [np.asarray(view, dtype=np.float64) for view in self.means]
        spreads = [np.asarray(view, dtype=np.float64) for view in self.covariances]
        expected = [(*view.shape, view.shape[-1]) for view in means]
        found = [view.shape for view in spreads]
        if not means or any(view.ndim != 2 for view in means) or expected != found:
            raise ConfigurationError(
                f"means of shapes {[view.shape for view in means]} with covariances of shapes "
                f"{found}; allowed are (c, d) and (c, d, d) for each view, one view at least."
            )
        if len({len(view) for view in means}) > 1:
            raise ConfigurationError(
                f"the views have {[len(view) for view in means]} clusters; allowed is the same "
                "number in every view."
            )
        for index, view in enumerate(spreads):
            is_symmetric = np.array_equal(view, view.transpose(0, 2, 1))
            if not is_symmetric or np.linalg.eigvalsh(view).min() <= 0:
                raise ConfigurationError(
                    f"a covariance of view {index} is not symmetric positive definite: "
                    f"{view.tolist()}."
                )

    @property
    def n_clusters(self) -> int:
        """c, the clusters in every view."""
        return len(self.means[0])


_WIDE, _NARROW = ((1.0, 0.5), (0.5, 1.5)), ((0.3, 0.0), (0.0, 0.6))

MIXTURE = GaussianMixture(
    means=(
        ((1.0, 1.0), (2.0, 2.0)),
        ((2.0, 2.0), (1.0, 1.0)),
        ((1.0, 1.0), (2.0, 2.0)),
    ),
    covariances=(
        (_WIDE, _NARROW),
        (_NARROW, _WIDE),
        (((1.2, 0.2), (0.2, 1.0)), ((0.6, 0.1), (0.1, 0.5))),
    ),
)
"""The mixture of `corrupted_mixture`, before its covariances are scaled.

Views 1 and 2 have the means (1, 1), (2, 2) and the two covariances of Kumar & Daumé's mixture,
the clusters changing places; view 3 has the same means and two covariances in between.
"""


def corrupted_mixture(
    n_samples: int = 1000,
    *,
    rng: np.random.Generator,
    corruption_rate: float = 0.0,
    noise_variance: float = 0.3,
    within_variance: float = 0.89,
    mixture: GaussianMixture = MIXTURE,
) -> MultiViewData:
    """Draw samples of a mixture in several views, a share of them corrupted in each view.

    A corrupted sample x of a view becomes x + e, e ~ N(0, noise_variance · ‖x‖₂ · I): the
    variance, as the paper words it, is proportional to the length, not to its square.

    Parameters
    ----------
    n_samples
        Cluster sizes differ by at most one; samples are shuffled.
    rng
        All randomness comes from it. The same generator state with another `corruption_rate` gives
        the same samples, the same noise and a nested set of corrupted samples.
    corruption_rate
        In [0, 1], the share corrupted in each view; which ones they are is drawn for each view
        by itself.
    noise_variance
        0.3 in the paper.
    within_variance
        Factor > 0 on every covariance. The default is calibrated, see docs/experiments.md.
    mixture

    Returns
    -------
    MultiViewData
        Views "view_1", "view_2", ... with labels 0..c-1.

    Raises
    ------
    ConfigurationError
        When a number is out of range.

    References
    ----------
    A. Kumar, H. Daumé III, "A co-training approach for multi-view spectral clustering", ICML
    2011. N. Xu et al., arXiv:1709.03656, Table 2.

    Examples
    --------
    >>> import numpy as np
    >>> clean = corrupted_mixture(50, rng=np.random.default_rng(0))
    >>> noisy = corrupted_mixture(50, rng=np.random.default_rng(0), corruption_rate=0.2)
    >>> changed = clean.views[0].read(0, 50) != noisy.views[0].read(0, 50)
    >>> int(changed.any(axis=1).sum()), np.bincount(clean.labels).tolist()
    (10, [25, 25])
    """
    _check_numbers(n_samples, corruption_rate, noise_variance, within_variance, mixture)
    labels = rng.permutation(np.arange(n_samples, dtype=np.int64) % mixture.n_clusters)
    n_corrupted = round(corruption_rate * n_samples)
    views = []
    for index, (means, covariances) in enumerate(
        zip(mixture.means, mixture.covariances, strict=True), start=1
    ):
        rows = _clean_rows(
            np.asarray(means), within_variance * np.asarray(covariances), labels, rng
        )
        noise = rng.standard_normal(rows.shape)
        chosen = rng.permutation(n_samples)[:n_corrupted]
        lengths = np.linalg.norm(rows[chosen], axis=1, keepdims=True)
        rows[chosen] += np.sqrt(noise_variance * lengths) * noise[chosen]
        views.append(ArrayRows(rows, f"view_{index}"))
    return MultiViewData(views=tuple(views), labels=labels)


def _clean_rows(
    means: Array, covariances: Array, labels: NDArray[np.int64], rng: np.random.Generator
) -> Array:
    """One view of the mixture, (n, d)."""
    factors = np.linalg.cholesky(covariances)
    standard = rng.standard_normal((len(labels), means.shape[1]))
    rows: Array = means[labels] + np.einsum("nij,nj->ni", factors[labels], standard)
    return rows


def _check_numbers(
    n_samples: int,
    corruption_rate: float,
    noise_variance: float,
    within_variance: float,
    mixture: GaussianMixture,
) -> None:
    if not isinstance(n_samples, Integral) or n_samples < mixture.n_clusters:
        raise ConfigurationError(
            f"n_samples={n_samples!r}; allowed is a whole number of at least {mixture.n_clusters}, "
            "one sample for each cluster."
        )
    if not 0 <= corruption_rate <= 1:
        raise ConfigurationError(
            f"corruption_rate={corruption_rate!r}; allowed is a share from 0 to 1 (0.3 for 30 %)."
        )
    for name, value, usable in (
        ("noise_variance", noise_variance, 0 <= noise_variance < np.inf),
        ("within_variance", within_variance, 0 < within_variance < np.inf),
    ):
        if not usable:
            raise ConfigurationError(
                f"{name}={value!r}; allowed is a finite number "
                f"{'>= 0' if name == 'noise_variance' else '> 0'}."
            )
