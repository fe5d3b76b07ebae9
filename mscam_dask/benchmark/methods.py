"""Every method an experiment can run: the baselines, and MSCAM and MSCAN with their grids."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mscam_dask.benchmark.baselines.registry import METHODS as BASELINES
from mscam_dask.benchmark.baselines.registry import Method
from mscam_dask.errors import ConfigurationError

__all__ = ["METHODS", "Method", "grid_points", "import_all", "make_estimator"]

_PAPER = "Xu, Guo, Wang, Luo, He, arXiv:1709.03656"

# What an experiment gives by itself, and what only Python can give.
_NOT_PARAMETERS = (
    "n_clusters",
    "max_clusters",
    "random_state",
    "n_jobs",
    "client",
    "callbacks",
    "n_features_per_view",
)


def _own(name: str) -> Method:
    """MSCAM or MSCAN as a method among the others."""

    def make(n_clusters: int, seed: int, parameters: Mapping[str, Any]) -> Any:
        from mscam_dask import estimators

        estimator = getattr(estimators, name.upper())
        allowed = [key for key in estimator._get_param_names() if key not in _NOT_PARAMETERS]
        unknown = [key for key in parameters if key not in allowed]
        if unknown:
            raise ConfigurationError(
                f"method {name!r} has no parameter {', '.join(map(repr, unknown))}; allowed are "
                f"{', '.join(allowed)}."
            )
        return estimator(n_clusters, random_state=seed, n_jobs=1, **parameters)

    return Method(
        name=name,
        title=name.upper(),
        reference=_PAPER,
        make=make,
        defaults=MappingProxyType({}),
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


METHODS: Mapping[str, Method] = MappingProxyType(
    {**BASELINES, **{name: _own(name) for name in ("mscan", "mscam")}}
)
"""Every method by its name, in the order of the paper's tables; the paper's own last."""


def make_estimator(
    method: Method, n_clusters: int, seed: int, parameters: Mapping[str, Any]
) -> Any:
    """Return the method's estimator.

    Raises
    ------
    ConfigurationError
        When it has no such parameter.
    """
    return method.make(n_clusters, seed, parameters)


def grid_points(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of a grid's values, the last parameter varying fastest.

    Examples
    --------
    >>> grid_points({"a": (1, 2), "b": (3,)})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def import_all() -> None:
    """Import what every method needs, so that it is there before the first fit."""
    for method in METHODS.values():
        method.make(2, 0, {"view": 0} if method.label_aware_view_choice else {})
