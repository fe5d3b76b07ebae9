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
import difflib
import importlib
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mscam_dask.errors import ConfigurationError

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

__all__ = [
    "BASELINES",
    "GROUP",
    "METHODS",
    "ROBUSTNESS",
    "TABLES",
    "Method",
    "grid_points",
    "import_all",
    "method",
    "paper_scores",
]

GROUP = "mscam_dask.methods"
"""Group of the entry points of methods: name = "module:Class"."""

_PAPER = "Xu, Guo, Wang, Luo, He, arXiv:1709.03656"

# Parameters of MSCAM and MSCAN that an experiment sets itself, or that are not values.
_NOT_PARAMETERS = (
    "n_clusters",
    "max_clusters",
    "random_state",
    "n_jobs",
    "client",
    "callbacks",
    "n_features_per_view",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """A method of an experiment.

    Attributes
    ----------
    name : str
        As in a pipeline, for example "sc-concat".
    title : str
        As in a table.
    reference : str
        Publication.
    make : callable (n_clusters, seed, parameters) -> estimator
        `parameters` are keyword arguments of the estimator. Raises `ConfigurationError`
        if the method has no such parameter.
    grid : mapping of str to tuple
        Values of the paper's parameter search, of which the other protocol takes the best by
        labels.
    label_aware_view_choice : bool
        Whether the method clusters one view, its parameter `view`, of which an experiment takes
        the best by labels.
    dense : bool
        Whether it holds (n, n) arrays.
    takes_arrays : bool
        Whether its `fit` takes a list of arrays in place of a `MultiViewData`.
    """

    name: str
    title: str
    reference: str
    make: Callable[[int, int, Mapping[str, Any]], BaseEstimator]
    grid: Mapping[str, tuple[Any, ...]]
    label_aware_view_choice: bool = False
    dense: bool = True
    takes_arrays: bool = False


def method(name: str) -> Method:
    """Return the baseline of this name.

    Raises
    ------
    ConfigurationError
        If there is none; the message has the nearest names and all names.

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
    if isinstance(name, str) and name in BASELINES:
        return BASELINES[name]
    near = difflib.get_close_matches(str(name).lower(), list(BASELINES), n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ConfigurationError(
        f"method {name!r} is unknown; allowed are {', '.join(BASELINES)}.{hint}"
    )


def _baseline(name: str, path: str, *, single_view: bool = False, **attributes: Any) -> Method:
    """Return a method whose estimator is "module:Class" in `mscam_dask.benchmark.baselines`."""

    def make(n_clusters: int, seed: int, parameters: Mapping[str, Any]) -> BaseEstimator:
        module, _, class_name = path.partition(":")
        estimator = getattr(
            importlib.import_module(f"mscam_dask.benchmark.baselines.{module}"), class_name
        )
        own = set(estimator._get_param_names()) - {"n_clusters", "random_state"}
        _check_names(name, parameters, sorted(own))
        if single_view and parameters.get("view") is None:
            raise ConfigurationError(
                f"method {name!r} clusters one view: set view to the name or position of a view."
            )
        return estimator(n_clusters, random_state=seed, **parameters)

    return Method(name=name, make=make, label_aware_view_choice=single_view, **attributes)


def _own(name: str) -> Method:
    """Return MSCAM or MSCAN as a method."""

    def make(n_clusters: int, seed: int, parameters: Mapping[str, Any]) -> BaseEstimator:
        from mscam_dask import estimators

        estimator = getattr(estimators, name.upper())
        own = [key for key in estimator._get_param_names() if key not in _NOT_PARAMETERS]
        _check_names(name, parameters, own)
        return estimator(n_clusters, random_state=seed, n_jobs=1, **parameters)

    return Method(
        name=name,
        title=name.upper(),
        reference=_PAPER,
        make=make,
        grid=MappingProxyType(
            {
                "scale": ("unit", "standard"),
                "alpha": (0.1, 1.0, 10.0),
                "graph_weight": (0.01, 0.1, 1.0),
                "n_neighbors": (9,),
            }
        ),
        dense=False,
    )


def _check_names(name: str, parameters: Mapping[str, Any], allowed: list[str]) -> None:
    unknown = [key for key in parameters if key not in allowed]
    if unknown:
        raise ConfigurationError(
            f"method {name!r} has no parameter {', '.join(map(repr, unknown))}; allowed are "
            f"{', '.join(allowed)}."
        )


def grid_points(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of a grid's values, the last parameter varying fastest.

    Examples
    --------
    >>> grid_points({"a": (1, 2), "b": (3,)})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def import_all() -> None:
    """Import the modules of every method, so that no fit has to."""
    for entry in METHODS.values():  # of the package: others are imported when they run
        entry.make(2, 0, {"view": 0} if entry.label_aware_view_choice else {})


_NG = "Ng, Jordan, Weiss, NIPS 2001"

_SSC = "Elhamifar, Vidal, TPAMI 2013"

# The papers of these two have no grid: values around the usual one.
_WIDTHS = (0.25, 0.5, 1.0, 2.0)
_SPARSITIES = (5.0, 10.0, 20.0, 50.0)

BASELINES: Mapping[str, Method] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            _baseline(
                "sc-bsv",
                "spectral:GaussianSpectral",
                title="SC-BSV",
                reference=_NG,
                grid=MappingProxyType({"width_factor": _WIDTHS}),
                single_view=True,
            ),
            _baseline(
                "ssc-bsv",
                "ssc:SSC",
                title="SSC-BSV",
                reference=_SSC,
                grid=MappingProxyType({"alpha": _SPARSITIES}),
                single_view=True,
            ),
            _baseline(
                "sc-concat",
                "spectral:GaussianSpectral",
                title="SC-Concat",
                reference=_NG,
                grid=MappingProxyType({"width_factor": _WIDTHS}),
            ),
            _baseline(
                "ssc-concat",
                "ssc:SSC",
                title="SSC-Concat",
                reference=_SSC,
                grid=MappingProxyType({"alpha": _SPARSITIES}),
            ),
            _baseline(
                "coreg",
                "coreg:CoReg",
                title="CoReg",
                reference="Kumar, Rai, Daumé, NIPS 2011",
                grid=MappingProxyType({"consensus_weight": (0.01, 0.02, 0.03, 0.04, 0.05)}),
            ),
            _baseline(
                "mmsc",
                "mmsc:MMSC",
                title="MMSC",
                reference="Cai, Nie, Huang, Kamangar, CVPR 2011",
                grid=MappingProxyType({"alpha": (0.01, 0.1, 1.0, 10.0, 100.0)}),
            ),
            _baseline(
                "dimsc",
                "dimsc:DiMSC",
                title="DiMSC",
                reference="Cao et al., CVPR 2015",
                grid=MappingProxyType(
                    {
                        "smoothness": (0.01, 0.02, 0.03),
                        "diversity": (20.0, 60.0, 100.0, 140.0, 180.0),
                    }
                ),
            ),
            _baseline(
                "mlan",
                "mlan:MLAN",
                title="MLAN",
                reference="Nie, Cai, Li, AAAI 2017",
                grid=MappingProxyType({"n_neighbors": (5, 7, 9, 11, 13, 15)}),
            ),
            _baseline(
                "lmvsc",
                "lmvsc:LMVSC",
                title="LMVSC",
                reference="Kang et al., AAAI 2020",
                grid=MappingProxyType(
                    {"n_anchors": (None, 50, 100), "alpha": (0.001, 0.01, 0.1, 1.0, 10.0)}
                ),
                dense=False,
            ),
            _baseline(
                "smvsc",
                "smvsc:SMVSC",
                title="SMVSC",
                reference="Sun et al., ACM MM 2021",
                grid=MappingProxyType({"anchors_per_cluster": (1, 2, 3)}),
                dense=False,
            ),
            _baseline(
                "knn-sc",
                "spectral:NeighborSpectral",
                title="kNN-SC",
                reference="von Luxburg, Statistics and Computing 2007; scikit-learn",
                grid=MappingProxyType({"n_neighbors": (5, 10, 15, 20)}),
                dense=False,
            ),
        )
    }
)
"""Every baseline by its name, in the order of the paper's tables."""


class _Methods(Mapping[str, Method]):
    """Methods by name: those of the package, of entry points, and any class as "module:Class"."""

    @cached_property
    def _named(self) -> dict[str, Method]:
        package = {**BASELINES, **{name: _own(name) for name in ("mscan", "mscam")}}
        added = {
            entry.name: _of_class(entry.name, entry.value) for entry in entry_points(group=GROUP)
        }
        return {**added, **package}

    def __getitem__(self, name: str) -> Method:
        if name in self._named:
            return self._named[name]
        if ":" not in name:
            raise KeyError(name)
        return _of_class(name, name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the methods of the package, which an experiment runs by default."""
        return (name for name in self._named if name in BASELINES or name in ("mscan", "mscam"))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (":" in name or name in self._named)

    def known(self) -> list[str]:
        """Return the names of all methods, including those of entry points."""
        return list(self._named)


METHODS = _Methods()
"""Every method by its name: the baselines, MSCAN and MSCAM, those that installed packages declare as
entry points of the group "mscam_dask.methods", and "module:Class"."""


def _of_class(name: str, path: str) -> Method:
    """Return the method of a clusterer "module:Class" outside this package.

    Its class takes `n_clusters`, and `random_state` where it draws random numbers; `fit` takes a list
    of (n, d_v) arrays and sets `labels_`.
    """

    def make(n_clusters: int, seed: int, parameters: Mapping[str, Any]) -> BaseEstimator:
        estimator = _class_at(name, path)
        known = list(inspect.signature(estimator).parameters)
        if "n_clusters" not in known or not hasattr(estimator, "fit"):
            raise ConfigurationError(
                f"method {name!r} cannot be compared: {path} needs a parameter n_clusters and a method "
                "fit(views) that sets labels_."
            )
        _check_names(
            name, parameters, [key for key in known if key not in ("n_clusters", "random_state")]
        )
        seeded = {"random_state": seed} if "random_state" in known else {}
        return estimator(n_clusters=n_clusters, **seeded, **parameters)

    return Method(
        name=name,
        title=path.rpartition(":")[2] if name == path else name,
        reference=path,
        make=make,
        grid=MappingProxyType({}),
        takes_arrays=True,
    )


def _class_at(name: str, path: str) -> Any:
    """Import "module:Class"; modules of the working directory are found too."""
    module, _, attribute = path.partition(":")
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"method {name!r} cannot be imported as {path} ({error}). Give module:Class of an installed "
            "package or of a module in the working directory."
        ) from error
    finally:
        sys.path.remove(here)


_ACC, _NMI = "accuracy", "normalized_mutual_information"

TABLES: Mapping[tuple[str, str], Mapping[str, float]] = MappingProxyType(
    {
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
)
"""Scores by (data set, method), Tables 3 and 4; the paper's protocol is the grid."""

ROBUSTNESS: Mapping[str, Mapping[float, float]] = MappingProxyType(
    {
        "mscam": {
            0.0: 0.874,
            0.1: 0.872,
            0.2: 0.868,
            0.3: 0.846,
            0.4: 0.840,
            0.5: 0.833,
            0.6: 0.826,
            0.7: 0.817,
            0.8: 0.788,
            0.9: 0.780,
        },
        "mlan": {0.0: 0.849},
    }
)
"""Accuracy by corrupted share, by method, Table 2."""


def paper_scores(dataset: str, method: str) -> dict[str, float]:
    """Return the scores of a method on a data set in the paper; empty if it has none."""
    return dict(TABLES.get((dataset, method), {}))
