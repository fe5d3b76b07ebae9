"""The comparison methods by name; light to import, each method's module comes when it is made."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mscam_dask.errors import ConfigurationError

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

__all__ = ["METHODS", "Method", "method"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """One comparison method.

    Attributes
    ----------
    name : str
        As written in a pipeline, for example "sc-concat".
    title : str
        As written in a table.
    reference : str
        The paper.
    make : callable (n_clusters, seed, parameters) -> estimator
        `parameters` are keyword arguments beyond `defaults`, which they override.
    defaults : mapping
        Parameters of the label-free protocol, without a look at the data.
    grid : mapping of str to tuple
        Values of the paper's parameter search; the best of them by labels is the other protocol.
    label_aware_view_choice : bool
        Whether the method is one of a single view, so that "best" is taken by the labels: its
        parameter `view` is to be tried for every view.
    dense : bool
        Whether it holds (n, n) arrays.
    """

    name: str
    title: str
    reference: str
    make: Callable[[int, int, Mapping[str, Any]], BaseEstimator]
    defaults: Mapping[str, Any]
    grid: Mapping[str, tuple[Any, ...]]
    label_aware_view_choice: bool = False
    dense: bool = True


def method(name: str) -> Method:
    """The method of this name.

    Raises
    ------
    ConfigurationError
        There is none; the message names the nearest and all there are.
    """
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(str(name).lower(), list(METHODS), n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ConfigurationError(
        f"method {name!r} is not known; allowed are {', '.join(METHODS)}.{hint}"
    )


def _entry(
    name: str,
    home: str,
    *,
    title: str,
    reference: str,
    defaults: Mapping[str, Any] | None = None,
    grid: Mapping[str, tuple[Any, ...]],
    single_view: bool = False,
    dense: bool = True,
) -> Method:
    """A method whose estimator is "module:Class" within this package."""
    fixed = MappingProxyType(dict(defaults or {}))

    def make(n_clusters: int, seed: int, parameters: Mapping[str, Any]) -> BaseEstimator:
        module, _, class_name = home.partition(":")
        estimator = getattr(
            importlib.import_module(f"mscam_dask.benchmark.baselines.{module}"), class_name
        )
        arguments = {**fixed, **parameters}
        allowed = sorted(estimator._get_param_names())
        unknown = sorted(
            set(arguments) - set(allowed) | {"n_clusters", "random_state"} & set(arguments)
        )
        if unknown:
            usable = [word for word in allowed if word not in ("n_clusters", "random_state")]
            raise ConfigurationError(
                f"method {name!r} has no parameter {', '.join(map(repr, unknown))}; allowed are "
                f"{', '.join(usable)} (clusters and seed are given apart)."
            )
        if single_view and arguments.get("view") is None:
            raise ConfigurationError(
                f"method {name!r} clusters one view: set view to its name or position, once for "
                "each view of the data."
            )
        return estimator(n_clusters, random_state=seed, **arguments)

    return Method(
        name=name,
        title=title,
        reference=reference,
        make=make,
        defaults=fixed,
        grid=MappingProxyType(dict(grid)),
        label_aware_view_choice=single_view,
        dense=dense,
    )


_NG = "Ng, Jordan, Weiss, NIPS 2001"

_SSC = "Elhamifar, Vidal, TPAMI 2013"

# The papers of these two give no grid: factors around the usual choice.
_WIDTHS = (0.25, 0.5, 1.0, 2.0)
_SPARSITIES = (5.0, 10.0, 20.0, 50.0)

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            _entry(
                "sc-bsv",
                "spectral:GaussianSpectral",
                title="SC-BSV",
                reference=_NG,
                grid={"width_factor": _WIDTHS},
                single_view=True,
            ),
            _entry(
                "ssc-bsv",
                "ssc:SSC",
                title="SSC-BSV",
                reference=_SSC,
                grid={"alpha": _SPARSITIES},
                single_view=True,
            ),
            _entry(
                "sc-concat",
                "spectral:GaussianSpectral",
                title="SC-Concat",
                reference=_NG,
                grid={"width_factor": _WIDTHS},
            ),
            _entry(
                "ssc-concat",
                "ssc:SSC",
                title="SSC-Concat",
                reference=_SSC,
                grid={"alpha": _SPARSITIES},
            ),
            _entry(
                "coreg",
                "coreg:CoReg",
                title="CoReg",
                reference="Kumar, Rai, Daumé, NIPS 2011",
                grid={"consensus_weight": (0.01, 0.02, 0.03, 0.04, 0.05)},
            ),
            _entry(
                "mmsc",
                "mmsc:MMSC",
                title="MMSC",
                reference="Cai, Nie, Huang, Kamangar, CVPR 2011",
                grid={"alpha": (0.01, 0.1, 1.0, 10.0, 100.0)},
            ),
            _entry(
                "dimsc",
                "dimsc:DiMSC",
                title="DiMSC",
                reference="Cao et al., CVPR 2015",
                grid={
                    "smoothness": (0.01, 0.02, 0.03),
                    "diversity": (20.0, 60.0, 100.0, 140.0, 180.0),
                },
            ),
            _entry(
                "mlan",
                "mlan:MLAN",
                title="MLAN",
                reference="Nie, Cai, Li, AAAI 2017",
                grid={"n_neighbors": (5, 7, 9, 11, 13, 15)},
            ),
            _entry(
                "lmvsc",
                "lmvsc:LMVSC",
                title="LMVSC",
                reference="Kang et al., AAAI 2020",
                grid={"n_anchors": (None, 50, 100), "alpha": (0.001, 0.01, 0.1, 1.0, 10.0)},
                dense=False,
            ),
            _entry(
                "smvsc",
                "smvsc:SMVSC",
                title="SMVSC",
                reference="Sun et al., ACM MM 2021",
                grid={"anchors_per_cluster": (1, 2, 3)},
                dense=False,
            ),
            _entry(
                "knn-sc",
                "knn_spectral:NeighborSpectral",
                title="kNN-SC",
                reference="von Luxburg, Statistics and Computing 2007; scikit-learn",
                grid={"n_neighbors": (5, 10, 15, 20)},
                dense=False,
            ),
        )
    }
)
"""Every comparison method by its name, in the order of the paper's tables."""
