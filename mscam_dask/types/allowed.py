"""The values that a setting allows, from its annotation: the check, its message and the text of the docs."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
import sys
import types
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from mscam_dask.errors import ConfigurationError

Count = Annotated[int, Meta(ge=1)]
WholeNumber = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
NotNegative = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Share = Annotated[float, Meta(ge=0, le=1)]

_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@functools.cache
def annotations_of(kind: type[Any]) -> dict[str, Any]:
    """Return the annotation of each field of a struct or dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def check_fields(values: Any) -> None:
    """Replace NumPy scalars in a dataclass by plain numbers, and refuse what the annotations do not allow."""
    annotations = annotations_of(values.__class__)
    for field in dataclasses.fields(values):
        value = check_value(field.name, getattr(values, field.name), annotations[field.name])
        object.__setattr__(values, field.name, value)


def check_value(name: str, value: Any, annotation: Any) -> Any:
    """Return a value, a NumPy scalar as a plain number; refuse what its annotation does not allow.

    A dict is no dataclass here, as it is in a file.
    """
    if isinstance(value, Integral | Real) and type(value).__module__ != "builtins":
        value = int(value) if isinstance(value, Integral) else float(value)
    try:
        if isinstance(value, dict) and table_of(annotation) is not None:
            raise msgspec.ValidationError
        msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"{name}={value!r} is not usable: allowed is {allowed_text(annotation, value)}"
        ) from error
    return value


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return a suggestion of the closest allowed name, or an empty text."""
    close = difflib.get_close_matches(name.lower(), list(allowed), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def allowed_text(annotation: Any, value: object) -> str:
    """Return what an annotation allows, as the end of a message, with the text closest to a misspelled one."""
    text = allowed_values(annotation)
    close = nearest(value, re.findall('`"([^"]+)"`', text)) if isinstance(value, str) else ""
    plain = text.replace("`", "").replace("≥", ">=").replace("≤", "<=")
    return f"{plain}.{close}"


def _metas_of(annotation: Any) -> Iterator[Meta]:
    """Yield the `Meta` of a type, the outermost first."""
    if get_origin(annotation) is Annotated:
        base, *metas = get_args(annotation)
        yield from reversed([meta for meta in metas if isinstance(meta, Meta)])
        yield from _metas_of(base)


def table_of(annotation: Any) -> Any:
    """Return the struct or dataclass that an annotation means; None without one."""
    if isinstance(annotation, type):
        is_table = issubclass(annotation, msgspec.Struct) or dataclasses.is_dataclass(annotation)
        return annotation if is_table else None
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        return next(filter(None, map(table_of, get_args(annotation))), None)
    return None


def allowed_values(annotation: Any) -> str:
    """Return the values that a type allows, in Markdown: its title, else what follows from it."""
    metas = list(_metas_of(annotation))
    if (title := next((meta.title for meta in metas if meta.title), None)) is not None:
        return title
    base = get_args(annotation)[0] if metas else annotation
    if base in (bool, str):
        return "`true`, `false`" if base is bool else "a text"
    if base in (int, float):
        return _range("a whole number" if base is int else "a number", metas)
    if get_origin(base) is Literal:
        return ", ".join(f'`"{text}"`' for text in get_args(base))
    if get_origin(base) in (Union, types.UnionType):
        parts = [part for part in get_args(base) if part is not type(None)]
        return " or ".join(allowed_values(part) for part in parts)
    if table_of(base) is not None or get_origin(base) is dict:
        return "a table"
    raise TypeError(f"{annotation} does not say what it allows: give its Meta a title.")


def _range(noun: str, metas: list[Meta]) -> str:
    bounds = {
        name: bound
        for meta in metas
        for name in _SIGNS
        if (bound := getattr(meta, name)) not in (None, sys.float_info.max)
    }
    if bounds.keys() == {"ge", "le"}:
        return f"{noun} from {_text(bounds['ge'])} to {_text(bounds['le'])}"
    limits = " and ".join(f"{_SIGNS[name]} {_text(bound)}" for name, bound in bounds.items())
    return f"{noun} {limits}".rstrip()


def _text(bound: float) -> str:
    """Number without the zeros and the plus of an exponent: 1e-6, not 1e-06."""
    return re.sub(r"e([+-])0*", lambda sign: "e" + sign[1].strip("+"), f"{bound:g}")
