"""A forwarder of TCP connections that can be slow, silent or gone: a network that fails."""

import socket
import threading
import time


class Forwarder:
    """Forwards connections to its own port to another one of this machine, until `close()`.

    What is under way while it is silent is not lost: it arrives when it is not any more, as TCP
    sends again what a network has lost.
    """

    def __init__(self, port):
        self._to = port
        self._delay = 0.0
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._sockets = set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self):
        return f"localhost:{self.port}"

    def delay(self, seconds):
        """Every piece of data takes so long from now on."""
        self._delay = seconds

    def silence(self):
        """Nothing passes any more, either way; connections stay, and new ones are accepted."""
        self._open.clear()

    def heal(self):
        """All that waits passes, and what comes."""
        self._open.set()

    def drop(self):
        """Ends all connections, as a router does that forgot them."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for each in sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:  # the other end was quicker
                pass

    def close(self):
        self._closed = True
        self._open.set()
        self._listener.close()
        self.drop()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near):
        self._open.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self._to))
        except OSError:
            near.close()
            return
        with self._lock:
            self._sockets |= {near, far}
        threads = [
            threading.Thread(target=self._pump, args=ends, daemon=True)
            for ends in ((near, far), (far, near))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self._lock:
            self._sockets -= {near, far}
        near.close()
        far.close()

    def _pump(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                if self._delay:
                    time.sleep(self._delay)
                self._open.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for each in (source, sink):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
