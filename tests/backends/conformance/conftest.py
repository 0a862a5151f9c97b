"""The same engine behind servers that we did not write; each test runs on both event loops."""

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection, socket
from typing import Any

import pytest
import uvicorn
import uvloop

from tests.backends.conformance.engine import Engine

READY_WITHIN_S = 10.0

Run = Callable[[Coroutine[Any, Any, None]], None]


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is, and the engine behind it."""

    url: str
    engine: Engine


@pytest.fixture(scope="session", params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs the coroutine of a test."""
    return asyncio.run if request.param == "asyncio" else uvloop.run


@pytest.fixture(
    scope="session",
    params=["uvicorn-httptools", "uvicorn-h11", pytest.param("nginx", marks=pytest.mark.nginx)],
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The servers, one after the other."""
    engine = Engine()
    if request.param == "nginx":
        with _uvicorn(engine, "h11") as port, _nginx(tmp_path_factory.mktemp("nginx"), port) as front:
            yield Server(front, engine)
    else:
        with _uvicorn(engine, request.param.partition("-")[2]) as port:
            yield Server(f"http://127.0.0.1:{port}", engine)


@contextmanager
def _uvicorn(engine: Engine, http: str) -> Iterator[int]:
    """uvicorn in a thread, with the parser `http`; its port."""
    listener = socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # who comes before uvicorn is ready waits
    config = uvicorn.Config(engine, http=http, lifespan="off", log_level="error", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        running.should_exit = True
        thread.join(READY_WITHIN_S)
        listener.close()
        assert not thread.is_alive(), "uvicorn did not stop"


_NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 64m;
  keepalive_requests 7;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{engine_port};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_buffering off;
      proxy_request_buffering off;
    }}
  }}
}}
"""
"""Every seventh answer on a connection is its last, which an engine that is restarted or overloaded does as well."""


@contextmanager
def _nginx(folder: Path, engine_port: int) -> Iterator[str]:
    """nginx in front of an engine; its URL."""
    program = shutil.which("nginx")
    assert program is not None, "there is no nginx on this machine"
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = folder / "nginx.conf"
    settings.write_text(_NGINX.format(folder=folder, port=port, engine_port=engine_port))
    with subprocess.Popen([program, "-p", str(folder), "-e", f"{folder}/error.log", "-c", str(settings)]) as process:
        try:
            _until_it_listens(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    gave_up = threading.Event()
    timer = threading.Timer(READY_WITHIN_S, gave_up.set)
    timer.start()
    try:
        while not gave_up.is_set():
            assert process.poll() is None, "nginx has ended"
            try:
                create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                gave_up.wait(0.02)
            else:
                return
    finally:
        timer.cancel()
    raise AssertionError("nginx does not listen")
