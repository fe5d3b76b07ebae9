"""How these pages become HTML: sphinx-build -W -n docs site."""

from __future__ import annotations

from mscam_dask import __version__

project = "mscam_dask"
author = "mscam_dask developers"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["site"]
nitpicky = True

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = f"mscam_dask {__version__}"
html_show_sourcelink = False
html_copy_source = False

numpydoc_show_class_members = False
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings give shapes and types
# Types of other libraries: their pages are not read to build these.
nitpick_ignore_regex = [("py:.*", ".*")]
