"""Rules between the keys of a table, which types cannot say."""

from __future__ import annotations

from collections.abc import Iterable

from mscam_dask.data.store.object_store import as_location
from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.errors import shown
from mscam_dask.pipeline.config.settings import (
    BUILT_IN_SOURCES,
    DataTable,
    ExecutionTable,
    OutputTable,
)
from mscam_dask.pipeline.config.toml_document import Document

__all__ = ["data_problems", "execution_problems", "output_problems", "text_problems"]


def text_problems(document: Document) -> Iterable[str]:
    """Yield the keys whose text no file, view or address can be called by."""
    for key, text in document.texts():
        if "://" in text and key[0] == "output" and key[1:] != ("checkpoints",):
            yield (
                f"{document.where(*key)}: {'.'.join(key)} = {shown(text)} is a URL; run directories "
                "are on file systems only. Give a directory; [output] checkpoints may be a URL."
            )
        if "://" in text and (
            (key[0] in ("data", "dataset") and key[-1] == "source")
            or key == ("output", "checkpoints")
        ):
            try:
                as_location(text)
            except ConfigurationError as error:
                yield f"{document.where(*key)}: {error}"
        if "\0" in text:
            name = ".".join(key[1:])
            yield (
                f"{document.where(*key)}: [{key[0]}] {name} has a NUL character: {shown(text)}; no "
                "path or name has one. Take it out."
            )


def data_problems(document: Document, data: DataTable) -> Iterable[str]:
    """Yield what keys of [data] have against each other."""
    built_in = [source for source in data.sources if source in BUILT_IN_SOURCES]
    if built_in and len(data.sources) > 1:
        yield (
            f"{document.where('data', 'source')}: {built_in[0]!r} is a source by itself; name it "
            f"alone, or write ./{built_in[0]} for a file of that name."
        )
        return
    source = built_in[0] if built_in else "files"
    owners = {
        "families": ("digits",),
        "path": ("mfeat",),
        "cache": ("mfeat",),
        "samples_in": ("files",),
        "header": ("files",),
        "id_column": ("files",),
        "delimiter": ("files",),
    }
    for key, allowed in owners.items():
        if getattr(data, key) is not None and source not in allowed:
            meant = "source = files" if allowed == ("files",) else f"source = {allowed[0]!r}"
            yield (
                f"{document.where('data', key)}: [data] {key} goes with {meant}, not with "
                f"{data.source!r}. Leave it out."
            )
    if data.path is not None and data.cache is not None:
        yield (
            f"{document.where('data', 'cache')}: [data] has path and cache; path reads files that "
            "are there, cache keeps fetched ones. Keep one of them."
        )


def output_problems(document: Document, output: OutputTable) -> Iterable[str]:
    """Yield what keys of [output] have against each other."""
    if output.keep is not None and output.directory is not None:
        yield (
            f"{document.where('output', 'keep')}: [output] keep is of the run directories below root; "
            "directory names a single one. Keep one of them."
        )


def execution_problems(document: Document, execution: ExecutionTable) -> Iterable[str]:
    """Yield what keys of [execution] have against each other."""
    where = document.where("execution")
    if execution.scheduler is not None:
        for key in ("workers", "threads", "memory_limit"):
            if getattr(execution, key) is not None:
                yield (
                    f"{document.where('execution', key)}: [execution] {key} is for a cluster that "
                    "the run starts; with a scheduler address, workers bring their own."
                )
        if execution.in_process:
            yield f"{where}: [execution] has scheduler and in_process; keep one of them."
    else:
        for key in ("tls_ca", "tls_cert", "tls_key"):
            if getattr(execution, key) is not None:
                yield (
                    f"{document.where('execution', key)}: [execution] {key} goes with "
                    "scheduler = 'tls://host:port'."
                )
    if execution.in_process:
        for key in ("workers", "memory_limit"):
            if getattr(execution, key) is not None:
                yield (
                    f"{document.where('execution', key)}: [execution] {key} needs worker "
                    "processes, and in_process has none. Leave one of them out."
                )
