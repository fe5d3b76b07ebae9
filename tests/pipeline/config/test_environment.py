"""Settings that come from the environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.read_config import read_config
from mscam_dask.pipeline.config.toml_document import environment_overrides
from tests.messages import quotes

Write = Callable[[str], Path]


def test_settings_from_the_environment_win_over_the_file(pipeline: Write) -> None:
    overrides = environment_overrides(
        {
            "MSCAM_CLUSTER__N_CLUSTERS": "4",
            "MSCAM_OUTPUT__ROOT": "/some where/runs",
            "MSCAM_EVALUATE__ENABLED": "false",
            "MSCAM_DATA": "/not/ours",
            "MSCAM_LOCK": "x",
        }
    )
    settings = read_config(pipeline(""), overrides)
    assert settings.cluster.n_clusters == 4
    assert settings.output.root == "/some where/runs"
    assert settings.evaluate.enabled is False


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("MSCAM_CLUSTER__", ["MSCAM_TABLE__KEY=value"]),
        ("MSCAM___N_CLUSTERS", ["MSCAM_TABLE__KEY=value"]),
        ("MSCAM_CLUSTER__N_CLUTSERS", ["'n_clutsers'", "'n_clusters'"]),
        ("MSCAM_CLUSTR__N_CLUSTERS", ["[clustr]", "'cluster'"]),
    ],
)
def test_a_variable_that_means_nothing_is_named(
    pipeline: Write, name: str, values: list[str]
) -> None:
    with pytest.raises(ConfigurationError, match=quotes(name, *values)):
        read_config(pipeline(""), environment_overrides({name: "4"}))
