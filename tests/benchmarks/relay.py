"""A relay in front of a TCP server that counts the bytes of both directions."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self

__all__ = ["CountingRelay"]


class CountingRelay:
    """Listens on loopback and passes everything on.

    Parameters
    ----------
    host, port
        Of the server.

    Attributes
    ----------
    port : int
        To connect to.
    n_sent, n_received : int
        Bytes to the server and from it, so far.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.port = int(self._listener.getsockname()[1])
        self.n_sent = 0
        self.n_received = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in [self._listener, *self._sockets]:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            threading.Thread(target=self._pump, args=(near, far, "n_sent"), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, "n_received"), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counter: str) -> None:
        try:
            while data := source.recv(65536):
                setattr(self, counter, getattr(self, counter) + len(data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # the other side has gone
            return
