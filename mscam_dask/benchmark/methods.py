"""Methods of an experiment: the baselines, MSCAN, MSCAM, own classes, and published scores.

Importing this module is light: the module of a method is imported when an estimator is made.

The published scores are of Xu et al., arXiv:1709.03656, as far as they are known: Table 2 the rows
of MSCAM and the first value of MLAN; Tables 3 and 4 MSCAN and MSCAM on all three data sets, and
the accuracies on Handwritten, MLAN also on Flowers-17. Unknown values are left out. The paper used
the publishers' Flowers-17 matrices and a subset of NUS-WIDE-Object, which differ from the copies
here, so only Handwritten is comparable.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import itertools
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mscam_dask.errors import ConfigurationError
from mscam_dask.types.allowed import nearest
from mscam_dask.types.parameters import Constants

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

GROUP = "mscam_dask.methods"
"""Group of the entry points of methods: name = "module:Class"."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """Method of an experiment, whose clusterer takes `n_clusters`, and `random_state` if it is random."""

    name: str  # as in a pipeline, for example "sc-concat"
    title: str  # as in a table
    reference: str
    path: str  # "module:Class" of its clusterer
    # Values of the paper's parameter search, of which the protocol "grid" takes the best by labels.
    grid: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    # Whether it clusters one view, its parameter `view`; an experiment takes the best by labels.
    label_aware_view_choice: bool = False
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # set in every experiment
    reserved: tuple[str, ...] = ()  # parameters that stay at their defaults
    constants: tuple[str, ...] = ()  # fields of `mscam_dask.Constants` that are parameters too

    @property
    def takes_arrays(self) -> bool:
        """Whether its `fit` takes a list of (n, d_v) arrays in place of a `MultiViewData`."""
        return not self.path.startswith("mscam_dask.")

    def parameters(self) -> list[str]:
        """Return the names of the parameters that an experiment can set."""
        estimator = self._class()
        known = inspect.signature(estimator).parameters
        if "n_clusters" not in known or not hasattr(estimator, "fit"):
            raise ConfigurationError(
                f"method {self.name!r} cannot be compared: {self.path} needs a parameter n_clusters "
                "and a method fit(views) that sets labels_."
            )
        ours = {"n_clusters", "random_state", *self.fixed, *self.reserved}
        return [*(key for key in known if key not in ours), *self.constants]

    def make(self, n_clusters: int, seed: int, parameters: Mapping[str, Any]) -> BaseEstimator:
        """Return the estimator with these keyword arguments.

        Raises
        ------
        ConfigurationError
            The class cannot be imported or compared, or has no such parameter.
        """
        allowed = self.parameters()
        unknown = [key for key in parameters if key not in allowed]
        if unknown:
            raise ConfigurationError(
                f"method {self.name!r} has no parameter {', '.join(map(repr, unknown))}; allowed are "
                f"{', '.join(allowed)}."
            )
        if self.label_aware_view_choice and parameters.get("view") is None:
            raise ConfigurationError(
                f"method {self.name!r} clusters one view: set view to the name or position of a view."
            )
        estimator = self._class()
        is_random = "random_state" in inspect.signature(estimator).parameters
        seeded = {"random_state": seed} if is_random else {}
        others = {key: parameters[key] for key in parameters if key not in self.constants}
        if self.constants:
            constants = {key: parameters[key] for key in self.constants if key in parameters}
            others["constants"] = Constants(**constants)
        return estimator(n_clusters=n_clusters, **seeded, **self.fixed, **others)

    def _class(self) -> Any:
        """Import the class; modules of the working directory are found too."""
        module, _, attribute = self.path.partition(":")
        here = str(Path.cwd())
        sys.path.append(here)
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigurationError(
                f"method {self.name!r} cannot be imported as {self.path} ({error}). Give module:Class "
                "of an installed package or of a module in the working directory."
            ) from error
        finally:
            sys.path.remove(here)


def method(name: str) -> Method:
    """Return a method by name: of the package, of an entry point, or a class as "module:Class".

    Raises
    ------
    ConfigurationError
        There is none.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(90) % 3
    >>> views = [6 * rng.normal(size=(3, d))[truth] + rng.normal(size=(90, d)) for d in (5, 8)]
    >>> coreg = method("coreg").make(3, 0, {"consensus_weight": 0.02})  # clusters, seed, parameters
    >>> np.bincount(coreg.fit_predict(views)).tolist()
    [30, 30, 30]
    """
    known = known_methods()
    if name in known:
        return known[name]
    if ":" in name:
        return Method(name=name, title=name.rpartition(":")[2], reference=name, path=name)
    raise ConfigurationError(
        f"{name!r} is not a method.{nearest(name, known)} Allowed are {', '.join(known)}, and "
        "module:Class."
    )


@functools.cache
def known_methods() -> Mapping[str, Method]:
    """Return the methods with a name: those of entry points and of the package."""
    added = {
        entry.name: Method(
            name=entry.name, title=entry.name, reference=entry.value, path=entry.value
        )
        for entry in entry_points(group=GROUP)
    }
    return {**added, **METHODS}


def grid_points(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of a grid's values, the last parameter varying fastest."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


_NG = "Ng, Jordan, Weiss, NIPS 2001"
_SSC = "Elhamifar, Vidal, TPAMI 2013"
_PAPER = "Xu, Guo, Wang, Luo, He, arXiv:1709.03656"

# The papers of SC and SSC have no grid: values around the usual one.
_WIDTHS = {"width_factor": (0.25, 0.5, 1.0, 2.0)}
_SPARSITIES = {"alpha": (5.0, 10.0, 20.0, 50.0)}
_ANCHORS = {"n_anchors": (None, 50, 100), "alpha": (0.001, 0.01, 0.1, 1.0, 10.0)}
_WEIGHTS = {"smoothness": (0.01, 0.02, 0.03), "diversity": (20.0, 60.0, 100.0, 140.0, 180.0)}
_KNN = "von Luxburg, Statistics and Computing 2007; scikit-learn"
_MMSC = "Cai, Nie, Huang, Kamangar, CVPR 2011"

# Name, title, "module:Class" in `mscam_dask.benchmark.baselines`, reference and grid.
_BASELINES: tuple[tuple[str, str, str, str, Mapping[str, tuple[Any, ...]]], ...] = (
    ("sc-bsv", "SC-BSV", "spectral:GaussianSpectral", _NG, _WIDTHS),
    ("ssc-bsv", "SSC-BSV", "self_representation:SSC", _SSC, _SPARSITIES),
    ("sc-concat", "SC-Concat", "spectral:GaussianSpectral", _NG, _WIDTHS),
    ("ssc-concat", "SSC-Concat", "self_representation:SSC", _SSC, _SPARSITIES),
    (
        *("coreg", "CoReg", "spectral:CoReg", "Kumar, Rai, Daumé, NIPS 2011"),
        {"consensus_weight": (0.01, 0.02, 0.03, 0.04, 0.05)},
    ),
    ("mmsc", "MMSC", "spectral:MMSC", _MMSC, {"alpha": (0.01, 0.1, 1.0, 10.0, 100.0)}),
    ("dimsc", "DiMSC", "self_representation:DiMSC", "Cao et al., CVPR 2015", _WEIGHTS),
    (
        *("mlan", "MLAN", "simplex_graphs:MLAN", "Nie, Cai, Li, AAAI 2017"),
        {"n_neighbors": (5, 7, 9, 11, 13, 15)},
    ),
    ("lmvsc", "LMVSC", "simplex_graphs:LMVSC", "Kang et al., AAAI 2020", _ANCHORS),
    (
        *("smvsc", "SMVSC", "simplex_graphs:SMVSC", "Sun et al., ACM MM 2021"),
        {"anchors_per_cluster": (1, 2, 3)},
    ),
    ("knn-sc", "kNN-SC", "spectral:NeighborSpectral", _KNN, {"n_neighbors": (5, 10, 15, 20)}),
)

BASELINES: dict[str, Method] = {
    name: Method(
        name=name,
        title=title,
        path=f"mscam_dask.benchmark.baselines.{path}",
        reference=reference,
        grid=grid,
        label_aware_view_choice=name.endswith("-bsv"),
    )
    for name, title, path, reference, grid in _BASELINES
}
"""Every baseline by its name, in the order of the paper's tables."""

_SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "scale": ("unit", "standard"),
    "alpha": (0.1, 1.0, 10.0),
    "graph_weight": (0.01, 0.1, 1.0),
    "n_neighbors": (9,),
}

METHODS: Mapping[str, Method] = BASELINES | {
    name: Method(
        name=name,
        title=name.upper(),
        reference=_PAPER,
        path=f"mscam_dask.estimators.mscam:{name.upper()}",
        grid=_SETTINGS,
        fixed={"n_jobs": 1},
        reserved=("max_clusters", "client", "callbacks", "constants"),
        constants=tuple(
            field.name for field in dataclasses.fields(Constants) if field.name != "admm"
        ),
    )
    for name in ("mscan", "mscam")
}
"""Methods of the package by name, which an experiment runs by default."""

_ACC, _NMI = "accuracy", "normalized_mutual_information"

TABLES: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("handwritten", "sc-bsv"): {_ACC: 0.723},
    ("handwritten", "sc-concat"): {_ACC: 0.752},
    ("handwritten", "ssc-bsv"): {_ACC: 0.767},
    ("handwritten", "ssc-concat"): {_ACC: 0.815},
    ("handwritten", "coreg"): {_ACC: 0.804},
    ("handwritten", "mmsc"): {_ACC: 0.840},
    ("handwritten", "dimsc"): {_ACC: 0.907},
    ("handwritten", "mlan"): {_ACC: 0.973, _NMI: 0.939},
    ("handwritten", "mscan"): {_ACC: 0.975, _NMI: 0.942},
    ("handwritten", "mscam"): {_ACC: 0.978, _NMI: 0.948},
    ("flowers17", "mlan"): {_ACC: 0.459},
    ("flowers17", "mscan"): {_ACC: 0.527, _NMI: 0.540},
    ("flowers17", "mscam"): {_ACC: 0.530, _NMI: 0.522},
}
"""Scores by (data set, method), Tables 3 and 4; the paper's protocol is the grid."""

_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_MSCAM = (0.874, 0.872, 0.868, 0.846, 0.840, 0.833, 0.826, 0.817, 0.788, 0.780)
ROBUSTNESS: Mapping[str, Mapping[float, float]] = {
    "mscam": dict(zip(_SHARES, _MSCAM, strict=True)),
    "mlan": {0.0: 0.849},
}
"""Accuracy by corrupted share, by method, Table 2."""
