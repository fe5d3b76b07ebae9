"""Run the pipelines of docs/gallery.md and draw its pictures, with Debian's chromium and chromium-driver.

pip install '.[test]' pillow && python -m docs.figures.gallery
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from mscam_dask.pipeline.read_config import read_config
from mscam_dask.pipeline.resume import run_pipeline
from mscam_dask.pipeline.run_directory import RunDirectory
from mscam_dask.pipeline.toml_document import Override
from tests.browser import open_browser

HERE = Path(__file__).resolve().parent

# Part of the report that a picture shows, and its height; the first screen by default.
PARTS = {"patients": ("#presence", 440, "center"), "noise-view": ("#views", 620, "start")}
FIRST_SCREEN = ("body", 470, "start")  # without the path of the data


def run(page: Path) -> dict[str, RunDirectory]:
    """Run the code and the pipelines of a page in the current directory; the run directories by name."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    directories = {}
    here = Override(key=("execution", "in_process"), value=True, origin="the gallery")
    for language, block in re.findall(r"```(python|toml)\n(.*?)```", text, re.DOTALL):
        if language == "python":
            exec(block, names)  # noqa: S102 - of the page
            continue
        file = Path(block.partition("\n")[0].removeprefix("# "))
        file.write_text(block, encoding="utf-8")
        directories[file.stem] = run_pipeline(
            read_config(file, [here]), Path(f"run-{file.stem}").resolve()
        ).directory
    return directories


def main() -> None:
    """Draw the pictures beside this file."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        with open_browser(Path(scratch)) as browser:
            for name, directory in run(HERE.parent / "gallery.md").items():
                part, height, block = PARTS.get(name, FIRST_SCREEN)
                browser.open(directory.report.as_uri())
                browser.resize(1180, height)
                browser.run(
                    "document.documentElement.style.scrollBehavior = 'auto';"
                    "document.querySelector('nav').style.display = 'none';"
                    f"document.querySelector('{part}').scrollIntoView({{block: '{block}'}})"
                )
                picture = Image.open(browser.screenshot(name)).quantize(
                    128, dither=Image.Dither.NONE
                )
                picture.save(HERE / f"gallery-{name}.png", optimize=True)
        os.chdir(HERE)


if __name__ == "__main__":
    main()
