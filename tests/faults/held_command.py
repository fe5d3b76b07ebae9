"""The command line, held while its cluster is open.

    python held_command.py FILE ARGUMENT...

Once the cluster is open it writes FILE, and goes on when FILE is gone.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from distributed import Client

from mscam_dask.cli import main
from mscam_dask.pipeline.run import cluster

if __name__ == "__main__":
    sign = Path(sys.argv[1])
    dashboard_of = cluster._dashboard_of

    def held(client: Client) -> str | None:
        sign.write_text("open")
        while sign.exists():
            time.sleep(0.1)
        return dashboard_of(client)

    cluster._dashboard_of = held
    main(sys.argv[2:])
