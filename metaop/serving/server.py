"""Starts and stops a server: in the foreground until a signal, or alongside a program."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from metaop.serving.application import DEFAULTS, Application, Limits
from metaop.serving.repository import Repository

# Connections that the system queues until they are accepted.
_BACKLOG = 2048


def application(
    sources: Sequence[str], limits: Limits = DEFAULTS, allow_control: bool = False
) -> Application:
    """An application that has loaded all models of its sources; see `Repository`.

    Raises MetaopError or Refusal if one of them cannot be loaded.
    """
    repository = Repository(sources, limits.most_rows)
    for name in repository.names():
        repository.load(name)
    return Application(repository, limits, allow_control)


def serve(application: Application, host: str, port: int, shutdown_seconds: int = 30) -> None:
    """Answers requests until SIGTERM or SIGINT.

    Requests received by then are answered within `shutdown_seconds`. Port 0 chooses a free port.
    Raises OSError if the port is in use.
    """
    with _listening(host, port) as listener:
        server = _server(application, shutdown_seconds)

        def end(number: int, frame: Any) -> None:
            # Also called after uvicorn has ended, when it sends itself the signal again.
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        models = ", ".join(application.repository.names())
        print(f"metaop serve: {models} at {_address(listener)}", flush=True)
        server.run(sockets=[listener])


@contextmanager
def serving(application: Application, port: int = 0) -> Iterator[str]:
    """Answers requests on a background thread; returns the address, `http://127.0.0.1:PORT`.

    When the block ends, received requests are answered, and the server stops.
    """
    with _listening("127.0.0.1", port) as listener:
        server = _server(application, None)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield _address(listener)
        finally:
            server.should_exit = True
            thread.join()


def _server(application: Application, shutdown_seconds: int | None) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            application.app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=shutdown_seconds,
        )
    )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    # Headers and body are written separately: the second would wait for an acknowledgement.
    # Connections inherit this; asyncio sets it only for sockets created otherwise.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
