"""Data layer: the only package that opens stores.

`views.as_multi_view` takes in what a caller holds, `ingest.ingest` turns files into one
chunked store, `validation.validate` says what cannot be clustered and what to do about it,
`datasets` makes and loads data to try. The names are imported from those modules.
"""

from __future__ import annotations
