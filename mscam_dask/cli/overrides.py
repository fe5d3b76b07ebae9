"""Settings that options of the command line override."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from mscam_dask.pipeline.config.environment import environment_overrides
from mscam_dask.pipeline.config.toml_document import Override, parse_override

__all__ = ["execution_overrides", "option_overrides"]

_OF_PROCESSES = ("workers", "memory_limit")
_TLS = ("tls_ca", "tls_cert", "tls_key")


def option_overrides(
    assignments: Sequence[str], execution: Mapping[str, object], *, others: Sequence[Override] = ()
) -> list[Override]:
    """Return overrides by the environment, by other options, by --set and by those of [execution].

    Later ones win.
    """
    return [
        *environment_overrides(os.environ),
        *others,
        *(parse_override(text) for text in assignments),
        *execution_overrides(execution),
    ]


def execution_overrides(options: Mapping[str, object]) -> Iterator[Override]:
    """Yield overrides of [execution]; a kind of cluster that an option names replaces the file's."""
    given = {name: value for name, value in options.items() if value not in (None, False)}
    out: tuple[str, ...] = ()
    if "in_process" in given:
        out = ("scheduler", *_TLS, *_OF_PROCESSES)
    elif "scheduler" in given:
        out = ("in_process", "threads", *_OF_PROCESSES)
    elif any(name in given for name in _OF_PROCESSES):
        out = ("scheduler", *_TLS, "in_process")
    elif "threads" in given:  # of workers, or of this process
        out = ("scheduler", *_TLS)
    for name in out:
        if name not in given:
            yield Override(("execution", name), None, "the command line")
    for name, value in given.items():
        dashed = name.replace("_", "-")
        said = f"--{dashed}" if value is True else f"--{dashed} {value}"
        yield Override(("execution", name), value, said)
