"""Where the shared index lives, as one URL, and who we are there.

    redis://HOST[:PORT][/DB]                              one server; rediss:// with TLS
    unix://PATH[?db=DB]                                   one server on a socket of this machine
    redis+sentinel://HOST[:PORT],HOST[:PORT]/SERVICE[/DB] sentinels, which know the primary; rediss+sentinel:// with TLS
    redis+cluster://HOST[:PORT],HOST[:PORT]               some nodes of a cluster; rediss+cluster:// with TLS

A user and a password may stand before the hosts, `USER:PASSWORD@`, percent-encoded. No text of ours repeats them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, unquote

from prefix_index.errors import RedisAddressInvalid

REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
SCHEMES: Final = (
    "redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://"
)

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")


_OPTIONS = frozenset({"db", "ssl_cert_reqs", "ssl_check_hostname"})


class Shape(Enum):
    """How many servers there are, and who says which of them to talk to."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Place(NamedTuple):
    """Host and port of one server."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RedisAccess:
    """Who we are to the servers, and whom we trust. Files are PEM; what is None is not used."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    """The sentinels' own; they have users apart from the servers'."""
    ca_file: Path | None = None
    """Certificate authorities to trust beside the system's."""
    cert_file: Path | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """One URL, read."""

    shape: Shape
    tls: bool
    places: tuple[Place, ...]
    """The server, the sentinels, or some nodes of the cluster; empty for a socket."""
    url: str = field(repr=False)
    """As given; it may hold a password."""
    service: str = ""
    """Name under which the sentinels know the primary."""
    db: int = 0
    """Of sentinels; redis-py reads that of a single server, and a cluster has only 0."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)


def read_address(url: str) -> RedisAddress:
    """Read a URL of one of the forms above. Raises RedisAddressInvalid, whose text holds no part of the login."""
    scheme, separator, rest = url.partition("://")
    kind, _, suffix = scheme.partition("+")
    shape = {"": Shape.SINGLE, "sentinel": Shape.SENTINEL, "cluster": Shape.CLUSTER}.get(suffix)
    if not separator or shape is None or kind not in ("redis", "rediss", *(("unix",) if not suffix else ())):
        raise RedisAddressInvalid(f"the URL must start with {SCHEMES}")
    if "#" in rest:
        raise RedisAddressInvalid("a # in the URL is percent-encoded, %23")
    rest, _, query = rest.partition("?")
    if not set(parse_qs(query, keep_blank_values=True)) <= _OPTIONS or not _are_numbers(query):
        raise RedisAddressInvalid(f"after a question mark only these are understood: {', '.join(sorted(_OPTIONS))}")
    if query and shape is not Shape.SINGLE:
        raise RedisAddressInvalid("only redis://, rediss:// and unix:// take options after a question mark")
    if kind == "unix":
        return _read_socket(url, rest)
    authority, _, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    username, _, password = login.partition(":")
    places = tuple(_read_places(hosts, shape))
    service, db = _read_path(shape, path)
    return RedisAddress(
        shape=shape,
        tls=kind == "rediss",
        places=places,
        url=url,
        service=service,
        db=db,
        username=unquote(username) or None,
        password=unquote(password) or None,
    )


def _are_numbers(query: str) -> bool:
    """Whether all numbers of databases are such."""
    return all(number.isdecimal() for number in parse_qs(query, keep_blank_values=True).get("db", ()))


def _read_socket(url: str, rest: str) -> RedisAddress:
    login, _, path = rest.rpartition("@")
    username, _, password = login.partition(":")
    if not path.startswith("/"):
        raise RedisAddressInvalid("unix:// needs the absolute path of a socket, as in unix:///run/redis.sock")
    return RedisAddress(
        Shape.SINGLE, False, (), url, username=unquote(username) or None, password=unquote(password) or None
    )


def _read_places(hosts: str, shape: Shape) -> Iterator[Place]:
    parts = hosts.split(",")
    if shape is Shape.SINGLE and len(parts) > 1:
        raise RedisAddressInvalid(
            "redis:// takes one host; for several there are redis+sentinel:// and redis+cluster://"
        )
    for number, part in enumerate(parts, 1):
        found = _HOST_AND_PORT.fullmatch(part)
        port = int(found[2] or (SENTINEL_PORT if shape is Shape.SENTINEL else REDIS_PORT)) if found else 0
        if found is None or not 0 < port < 1 << 16:
            # The text itself may be the end of a password with an @ or a slash in it.
            raise RedisAddressInvalid(
                f"host {number} of the URL is no HOST:PORT; a user or password is percent-encoded (@ is %40, / is %2F)"
            )
        yield Place(found[1].strip("[]"), port)


def _read_path(shape: Shape, path: str) -> tuple[str, int]:
    """Service and number of the database."""
    if shape is Shape.SENTINEL:
        service, _, db = path.partition("/")
        if not re.fullmatch(r"[^@:#]+", service):
            raise RedisAddressInvalid("redis+sentinel:// needs the name of the service: redis+sentinel://HOST/SERVICE")
    else:
        service, db = "", path
    if not re.fullmatch(r"[0-9]{0,5}", db):
        raise RedisAddressInvalid("what follows the hosts must be the number of a database")
    if shape is Shape.CLUSTER and int(db or 0):
        raise RedisAddressInvalid("a cluster has only the database 0")
    return unquote(service), int(db or 0)
