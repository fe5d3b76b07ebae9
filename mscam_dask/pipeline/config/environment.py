"""Settings from the environment, for schedulers and containers: MSCAM_<TABLE>__<KEY>=value.

They win over the file and lose to the command line. MSCAM_CLUSTER__N_CLUSTERS=12 is what
--set cluster.n_clusters=12 would be; a value that is no TOML is text.
"""

from __future__ import annotations

from collections.abc import Mapping

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.toml_document import Override, parse_override

__all__ = ["PREFIX", "environment_overrides"]

PREFIX = "MSCAM_"
_BETWEEN = "__"


def environment_overrides(environment: Mapping[str, str]) -> list[Override]:
    """Return the overrides that the variables of an environment ask for.

    Parameters
    ----------
    environment
        Such as `os.environ`. Variables that begin with MSCAM_ and have no double underscore
        (MSCAM_DATA) belong to others and are left alone.

    Raises
    ------
    ConfigurationError
        When a variable has no table or no key.

    Examples
    --------
    >>> found = environment_overrides({"MSCAM_CLUSTER__N_CLUSTERS": "12", "HOME": "/root"})
    >>> [(override.key, override.value) for override in found]
    [(('cluster', 'n_clusters'), 12)]
    """
    overrides = []
    for name in sorted(environment):
        if not name.startswith(PREFIX) or _BETWEEN not in name:
            continue
        key = tuple(part.lower() for part in name.removeprefix(PREFIX).split(_BETWEEN))
        if len(key) < 2 or not all(key):
            raise ConfigurationError(
                f"the environment variable {name} names no setting; allowed is "
                f"{PREFIX}TABLE{_BETWEEN}KEY=value, for example {PREFIX}CLUSTER{_BETWEEN}N_CLUSTERS=10."
            )
        value = _value(environment[name])
        overrides.append(Override(key, value, f"{name}={environment[name]} (environment)"))
    return overrides


def _value(text: str) -> object:
    """A TOML value, or else the text as it is: shells and unit files have quotes of their own."""
    try:
        return parse_override(f"table.key={text}").value
    except ConfigurationError:
        return text
