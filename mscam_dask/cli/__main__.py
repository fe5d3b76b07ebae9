"""`python -m mscam_dask.cli`, for environments without the script on the path."""

from __future__ import annotations

from mscam_dask.cli import main

if __name__ == "__main__":
    main(prog_name="mscam-dask")
