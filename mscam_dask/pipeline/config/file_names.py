"""Names of files and directories that are valid on every system."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.parse import shown

__all__ = ["are_one_name", "check_name", "name_of_pipeline", "name_problem"]

# Leaves room for prefixes and suffixes within the usual 255 bytes.
_MAX_BYTES = 200
_FORBIDDEN = re.compile(r"[/\\:*?\"<>|\x00-\x1f\x7f]")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def name_problem(name: str) -> str | None:
    """Return why a name is not valid and what is allowed; None if it is valid.

    Names that begin with a dot are reserved for partial files.

    Examples
    --------
    >>> name_problem("MSRC-v1 (5 views)") is None
    True
    >>> name_problem("../elsewhere")
    "begins with '.'; allowed is one plain name, without / or other parts of a path"
    """
    forbidden = _FORBIDDEN.search(name)
    if not name:
        reason = "is empty"
    elif name.startswith("."):
        reason = "begins with '.'"
    elif forbidden is not None:
        reason = f"has {forbidden[0]!r}"
    elif name[-1] in ". ":
        reason = f"ends with {name[-1]!r}"
    elif _DEVICE.fullmatch(name):
        reason = "is the name of a device on Windows"
    elif (n_bytes := len(name.encode(errors="replace"))) > _MAX_BYTES:
        reason = f"has {n_bytes} bytes, and names have at most {_MAX_BYTES}"
    else:
        return None
    return f"{reason}; allowed is one plain name, without / or other parts of a path"


def are_one_name(name: str, other: str) -> bool:
    """Return whether two names may be the same file on some system (case, Unicode form).

    Examples
    --------
    >>> are_one_name("MSRC", "msrc")
    True
    >>> are_one_name("u\u0308", "\u00dc"), are_one_name("u", "\u00fc")
    (True, False)
    """
    name, other = (unicodedata.normalize("NFC", text).casefold() for text in (name, other))
    return name == other


def check_name(name: str, what: str, remedy: str) -> None:
    """Refuse a name that is not valid.

    Parameters
    ----------
    name
    what
        Subject of the message.
    remedy
        Last sentence of the message.

    Raises
    ------
    ConfigurationError
    """
    problem = name_problem(name)
    if problem is not None:
        raise ConfigurationError(f"{what} {shown(name)} {problem}. {remedy}")


def name_of_pipeline(path: str | Path) -> str:
    """Return the name of a pipeline file without its suffix, the prefix of its run directories.

    Raises
    ------
    ConfigurationError
        When the name is not valid for a directory.
    """
    name = Path(path).stem
    check_name(
        name, f"{path}: the pipeline's name", "Run directories are named after it: rename the file."
    )
    return name
