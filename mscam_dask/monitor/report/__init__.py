"""Reports of runs: one self-contained HTML file each.

`page.RunContent` is the content of a report, and `page.run_page` renders it. Figures are SVG and
PNG, so that a page prints and can be read without scripts; a short script adds tooltips, linked
highlighting and sorting. The size of a page does not grow with the number of samples: a note
beside each table and figure states what is omitted.
"""

from __future__ import annotations
