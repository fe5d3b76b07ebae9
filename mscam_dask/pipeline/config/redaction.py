"""Text that leaves a run - messages, records, events - without credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from mscam_dask.errors import redacted
from mscam_dask.pipeline.config.toml_document import Document

__all__ = ["credential_problems", "without_credentials"]

_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|ACCESS_?KEY|API_?KEY|PRIVATE_?KEY|CONNECTION_STRING"
)
_SHORTEST = 8  # shorter values occur in any text

# In these addresses the part before the @ is a container.
_CONTAINER = re.compile(r"\b((?:abfss?|wasbs?)://)[^\s/@:]+@")


def without_credentials(text: str) -> str:
    """Return a text without credentials, and without the values of secret environment variables.

    For text that others wrote: the package's own errors are redacted when they are made.
    """
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and _SECRET_NAME.search(name.upper()) and value in text:
            text = text.replace(value, f"${name}")
    return redacted(text)


def credential_problems(document: Document) -> Iterable[str]:
    """Yield every key of a pipeline file whose value carries a credential.

    A run directory has a copy of its pipeline file, which people pass on.
    """
    for key, value in document.texts():
        address = _CONTAINER.sub(r"\g<1>", value)
        if redacted(address) != address:
            yield (
                f"{document.where(*key)}: {'.'.join(key)} carries a credential. Pipeline files are "
                "copied into run directories and have none: put it where its library looks for it, "
                "in the environment (AWS_SECRET_ACCESS_KEY, ...) or in a file of your own."
            )
