"""Where the files under test are, and how they are read."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def documents(file: Path) -> list[Any]:
    """Every document of a YAML file."""
    with file.open(encoding="utf-8") as stream:
        return [document for document in yaml.safe_load_all(stream) if document is not None]


def imported(file: Path) -> ModuleType:
    """A program as a module: what it defines, not run."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def installed_program(name: str) -> str:
    """A program that came with a Python package: beside the interpreter."""
    return str(Path(sys.executable).with_name(name))


def write_program(path: Path, text: str) -> Path:
    """An executable script."""
    path.write_text(text)
    path.chmod(0o755)
    return path
