"""Where an engine says that it publishes the events of its KV cache, as seen from here.

    the engine says       it does          for us
    tcp://*:5557          binds            tcp://<host of the endpoint>:5557     connect
    ipc:///run/kv         binds            ipc:///run/kv                         connect, on the same machine
    tcp://<its own>:5557  bound, port 0    tcp://<its own>:5557                  connect
    tcp://gateway:5557    connects         tcp://*:5557                          bind

A socket for replays is always bound by the engine. An address that is neither ours nor the engine's own cannot be told
from one that a proxy or another reader binds: only what is configured can say so. What cannot be read is left out.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from backends.types import EventSourceFacts

MAX_RANKS = 1024
"""More than one endpoint has; a page that says more is nonsense."""
_ANY_HOST = frozenset({"*", "::", "0.0.0.0"})  # noqa: S104  what engines write for "all interfaces"; nothing is bound


def by_rank(page: object, host: str) -> tuple[EventSourceFacts, ...]:
    """From a page that maps each rank to its publisher's settings, as vLLM's; `host` is the endpoint's."""
    if not isinstance(page, Mapping):
        return ()
    found = []
    for name, settings in page.items():
        if not (isinstance(name, str) and name.isascii() and name.isdecimal() and int(name) < MAX_RANKS):
            continue
        if not isinstance(settings, Mapping) or settings.get("enable_kv_cache_events") is False:
            continue
        url = publisher_url(settings.get("endpoint"), host, settings.get("replay_endpoint"))
        if url is None or settings.get("publisher", "zmq") != "zmq":
            continue
        replay_url = bound_url(settings.get("replay_endpoint"), host)
        found.append(EventSourceFacts(int(name), url, replay_url, _text(settings.get("topic"))))
    return tuple(sorted(found, key=lambda source: source.rank))


def from_base_ports(settings: object, host: str) -> tuple[EventSourceFacts, ...]:
    """From one description of all ranks, as SGLang's: rank r publishes at the first one's port + r."""
    if not isinstance(settings, Mapping) or settings.get("publisher") != "zmq":
        return ()
    said, port, replay_port = (
        settings.get(key) for key in ("endpoint_host", "endpoint_port_base", "replay_endpoint_port_base")
    )
    ranks = settings.get("dp_size", 1)
    if type(ranks) is not int or not 0 < ranks <= MAX_RANKS or not isinstance(said, str) or type(port) is not int:
        return ()
    said = said.strip("[]")
    # A publisher that is told to bind may be given 0.0.0.0, to which nobody could connect.
    said = "*" if said in _ANY_HOST else said
    found = []
    for rank in range(ranks):
        url = publisher_url(_tcp(said, port + rank), host)
        replay_url = None if type(replay_port) is not int else bound_url(_tcp(said, replay_port + rank), host)
        if url is not None:
            found.append(EventSourceFacts(rank, url, replay_url, _text(settings.get("topic"))))
    return tuple(found)


def publisher_url(said: object, host: str, replay_said: object = None) -> str | None:
    """The address of a publisher for a subscriber elsewhere: see the table above. None for what nobody can reach.

    The engine's own address is the endpoint's `host`, or where it says that it binds the socket for replays.
    """
    parsed = _parsed(said)
    if parsed is None or isinstance(parsed, str):
        return parsed
    said_host, port = parsed
    if said_host in ("*", "::"):
        return _tcp(host, port)
    replay = _parsed(replay_said)
    own = {host, replay[0] if isinstance(replay, tuple) else host}
    if said_host in own and not _is_loopback(said_host):
        return _tcp(said_host, port)
    return f"tcp://*:{port}"


def bound_url(said: object, host: str) -> str | None:
    """The address of a socket that the engine binds, for a client elsewhere; None where there is none."""
    parsed = _parsed(said)
    if parsed is None or isinstance(parsed, str):
        return parsed
    said_host, port = parsed
    return _tcp(host if said_host in _ANY_HOST else said_host, port)


def _parsed(said: object) -> str | tuple[str, int] | None:
    """Host and port of a `tcp://` address, an `ipc://` one as it is, None for anything else."""
    if not isinstance(said, str):
        return None
    if said.startswith("ipc://"):
        return said if len(said) > len("ipc://") else None
    try:
        parts = urlsplit(said)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if parts.scheme != "tcp" or not host or not port else (host, port)


def _tcp(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _text(said: object) -> str:
    return said if isinstance(said, str) else ""
