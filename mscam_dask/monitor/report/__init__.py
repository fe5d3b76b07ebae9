"""Reports of runs: one HTML file each, complete in itself, that opens without a network.

`content.RunContent` says what a report is made from, in plain values and arrays; `page.run_page`
turns it into HTML. The pictures are SVG and PNG made here, so that a page also prints and is
readable without scripts; a few lines of script add tooltips, linked highlighting and sorting.
Nothing on a page grows with the number of samples: whatever is cut short says so beside it.
"""

from __future__ import annotations
