"""A relay in front of a TCP server that counts the bytes of both directions."""

from __future__ import annotations

import socket
import threading

__all__ = ["CountingRelay"]


class CountingRelay:
    """Relay that listens on loopback and forwards everything until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._counting = threading.Lock()
        self.port = int(self._listener.getsockname()[1])
        self.n_bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close all connections."""
        for connection in [self._listener, *self._sockets]:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                with self._counting:
                    self.n_bytes += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # the peer has closed
            return
