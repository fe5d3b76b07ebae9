"""The examples of the pages and of CONTRIBUTING.md do what they say; links, files and names lead somewhere."""

from __future__ import annotations

import importlib
import inspect
import posixpath
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.deploy.files import ROOT
from tests.docs.files_from import write_files
from tests.docs.pages import run_page
from tests.omics import writable_text
from tests.processes import run, script_environment

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = {
    "anndata": 4,
    "quickstart": 7,
    "own-data": 9,
    "files-from": 9,
    "batches": 1,
    "incomplete-views": 7,
    "clusters": 8,
    "nightly-pipeline": 5,
    "models": 8,
    "plots": 3,
}


@pytest.mark.timeout(400)  # several fits, each started from the command line
@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.thorough
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sybil", reason="pip install 'mscam-dask[test]'")
    monkeypatch.chdir(tmp_path)
    if name in ("anndata", "files-from"):
        pytest.importorskip("mudata", reason="pip install 'mscam-dask[omics]'")
    if name == "files-from":
        pytest.importorskip("openpyxl", reason="pip install 'mscam-dask[excel]'")
        with writable_text():
            write_files(tmp_path)
    with writable_text() if name == "anndata" else nullcontext():
        assert run_page(DOCS / f"{name}.md") == EXAMPLES[name]


@pytest.mark.parametrize("page", ["README.md", "docs/choosing-c.md", "docs/confidence.md"])
def test_the_output_shown_is_the_output(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sybil", reason="pip install 'mscam-dask[test]'")
    monkeypatch.chdir(tmp_path)
    run_page(DOCS.parent / page)
    shown = re.findall(r"```text\n(.*?)```", (DOCS.parent / page).read_text("utf-8"), re.DOTALL)
    words, expected = capsys.readouterr().out.split(), "".join(shown).split()
    assert [word for word in words if not _is_number(word)] == [
        word for word in expected if not _is_number(word)
    ]
    assert _numbers(words) == pytest.approx(_numbers(expected), abs=0.02)


def _is_number(word: str) -> bool:
    return re.fullmatch(r"\[?-?\d+(\.\d*)?\]?", word) is not None


def _numbers(words: list[str]) -> list[float]:
    return [float(word.strip("[]")) for word in words if _is_number(word)]


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "deploy/README.md"]
)
def test_links_of_pages_outside_the_site_lead_somewhere(name: str) -> None:
    from markdown_it import MarkdownIt

    def anchors(page: Path) -> set[str]:
        titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}

    page = DOCS.parent / name
    tokens = [
        part
        for token in MarkdownIt().parse(page.read_text("utf-8"))
        for part in token.children or ()
    ]
    links = [str(part.attrs["href"]) for part in tokens if part.type == "link_open"]
    assert links
    for link in links:
        file, _, anchor = link.partition("#")
        if "://" not in link:
            target = page.parent / file if file else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.thorough
def test_an_example_that_is_wrong_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sybil", reason="pip install 'mscam-dask[test]'")
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    for example in (
        "console\n$ mscam-dask describe absent\n",
        "console\n$ echo one two three\none ... four\n",
        "console\n$ echo one two three\nError: ...\n",
        "python\nassert 1 == 2\n",
    ):
        page.write_text(f"```{example}```\n")
        with pytest.raises(AssertionError):
            run_page(page)
    page.write_text("```console\n$ echo one two three\none ... three\n```\n")
    assert run_page(page) == 1


@pytest.mark.thorough
def test_the_pages_build_without_a_warning_and_links_lead_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("myst_parser", reason="pip install 'mscam-dask[docs]'")
    options = ("-W", "-n", "-q", "--keep-going", DOCS, tmp_path / "site")
    done = run(sys.executable, "-m", "sphinx", *options, timeout=110)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "quickstart.html").is_file()
    assert _public_names() <= _documented_names(tmp_path / "site")


def _public_names() -> set[str]:
    """Classes and functions that users import."""
    modules = map(
        importlib.import_module,
        (
            "mscam_dask",
            "mscam_dask.data.datasets",
            "mscam_dask.errors",
            "mscam_dask.metrics",
            "mscam_dask.types.events",
        ),
    )
    return {
        f"{module.__name__}.{name}"
        for module in modules
        for name in getattr(module, "__all__", vars(module))
        if inspect.isclass(value := getattr(module, name)) or inspect.isfunction(value)
        if hasattr(module, "__all__") or value.__module__ == module.__name__
    }


def _documented_names(site: Path) -> set[str]:
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", posixpath.join)
    return {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}


PAGE = ROOT / "CONTRIBUTING.md"


@pytest.mark.thorough
def test_the_extensions(tmp_path: Path) -> None:
    """The examples register their extensions in a process of their own."""
    pytest.importorskip("sybil", reason="pip install 'mscam-dask[test]'")
    program = "import sys, pathlib, tests.docs.pages as pages; print(pages.run_page(pathlib.Path(sys.argv[1])))"
    done = run(sys.executable, "-c", program, PAGE, cwd=tmp_path, env=script_environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "8"


def test_files_and_names_in_them_exist() -> None:
    text = re.sub(r"```.*?```", "", PAGE.read_text("utf-8"), flags=re.DOTALL)
    names = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text))
    assert len(names) > 40
    places = {name: [*ROOT.glob(f"{name}*"), *ROOT.glob(f"mscam_dask/{name}*")] for name in names}
    assert not [name for name, found in places.items() if not found]
    pairs = re.findall(r"(?:`([\w.]+)`,? and )?`([\w.]+)`,? in `([\w/]+\.py)`", text)
    assert len(pairs) > 12
    missing = [
        (name, file)
        for *words, file in pairs
        for name in filter(None, words)
        if not re.search(rf"\b{name.split('.')[-1]}\b", places[file][0].read_text("utf-8"))
    ]
    assert not missing
