"""Another user of this computer, who tries every port of a cluster.

    python local_attacker.py PORT...

Prints the address of each Dask server that answers. Run by root it becomes user 65534 first, after
the imports: that user may be unable to read them.
"""

from __future__ import annotations

import asyncio
import os
import sys

from distributed import Client, LocalCluster, Security
from distributed.core import rpc

NOBODY = 65534
PATIENCE_S = 5.0


async def answers(address: str, security: Security) -> bool:
    connection = security.get_connection_args("client")
    try:
        async with asyncio.timeout(PATIENCE_S):
            async with rpc(address, timeout=PATIENCE_S, connection_args=connection) as server:
                await server.identity()
    except Exception:  # noqa: BLE001 - of any kind: the door is closed
        return False
    return True


async def reached(ports: list[str], foreign: Security) -> list[str]:
    tries = [(f"tcp://127.0.0.1:{port}", Security()) for port in ports]
    tries += [(f"tls://127.0.0.1:{port}", foreign) for port in ports]
    found = await asyncio.gather(*(answers(*one) for one in tries))
    return [address for (address, _), is_open in zip(tries, found, strict=True) if is_open]


if __name__ == "__main__":
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.submit(abs, -1).result()  # imports what is imported late, as the next line does
        certificates = Security.temporary()
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    for address in asyncio.run(reached(sys.argv[1:], certificates)):
        sys.stdout.write(f"{address}\n")
