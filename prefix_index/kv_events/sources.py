"""Where the KV events of one cache come from, as configuration.

    engine was given        it ...                  so our URL is           and we ...
    tcp://*:5557            binds                   tcp://engine:5557       connect
    tcp://gateway:5557      connects to us          tcp://*:5557            bind
    ipc:///run/kv           binds                   ipc:///run/kv           connect

Exactly one side binds, and vLLM decides by the look of its address; our rule is the mirror of its rule, so that a URL
copied to the wrong side is seen as what it is (`FeedState.AWAY`) and nothing is guessed. Ranks of a data-parallel
engine publish on consecutive ports. The replay socket is always the engine's.

Messages carry no proof of who sent them: bind only where nobody but engines can connect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from prefix_index.errors import EventSourceInvalid

_SCHEMES = ("tcp://", "ipc://")
_LAST_PORT = 65535
_LOOPBACK = ("127.", "[::1]")


@dataclass(frozen=True, slots=True)
class EventSource:
    """One publisher: of one endpoint, of one data-parallel rank. Raises EventSourceInvalid.

    `url` is where its messages come from; one with `*` or `::` is an address that we bind. `bind` overrules that: True
    binds one interface (`tcp://127.0.0.1:5557`), False connects to an address of IPv6. `replay_url` is where lost
    messages are asked for, None where the engine has no such socket. `topic` is the publisher's own, whole; with the
    empty one every message at the URL is taken for it, and nobody else can share the URL. URLs are those of `rank`.
    """

    url: str
    replay_url: str | None = None
    topic: str = ""
    rank: int = 0
    bind: bool | None = None

    def __post_init__(self) -> None:
        if not _is_text(self.topic):
            raise EventSourceInvalid(self.url, "its topic is no text")
        _check(self.url)
        if self.replay_url is not None:
            _check(self.replay_url)
            if "*" in self.replay_url:
                raise EventSourceInvalid(self.replay_url, "the engine binds it; name the engine's host instead of *")

    @property
    def is_bound(self) -> bool:
        """Whether we bind the URL, and publishers connect to it."""
        if self.bind is not None:
            return self.bind
        return "*" in self.url or "::" in self.url

    def of_rank(self, rank: int) -> "EventSource":
        """The source of another rank of the same engine. Raises EventSourceInvalid where it cannot have one."""
        steps = rank - self.rank
        replay_url = None if self.replay_url is None else url_of_rank(self.replay_url, steps)
        return replace(self, url=url_of_rank(self.url, steps), replay_url=replay_url, rank=rank)


def url_of_rank(url: str, rank: int) -> str:
    """What an engine makes of an address of rank 0: port + rank.

    Raises EventSourceInvalid: over ipc, engines publish rank 0 alone.
    """
    if rank == 0:
        return url
    if url.startswith("ipc://"):
        raise EventSourceInvalid(url, "over ipc an engine publishes rank 0 alone; use tcp")
    host, _, port = url.rpartition(":")
    if int(port) + rank > _LAST_PORT:
        raise EventSourceInvalid(url, f"rank {rank} has no port")
    return f"{host}:{int(port) + rank}"


def source_of_engine(settings: Mapping[str, object], host: str, rank: int = 0) -> EventSource | None:
    """The other end of what an engine says of itself (vLLM: one entry of `GET /kv_event_sources`).

    None where it publishes nothing. `host` is where the engine is reached; its ports are those of `rank` already.
    Raises EventSourceInvalid.
    """
    endpoint, replay_url, topic = (settings.get(name) for name in ("endpoint", "replay_endpoint", "topic"))
    if not settings.get("enable_kv_cache_events", True) or not isinstance(endpoint, str):
        return None
    theirs = EventSource(endpoint)
    is_file = not endpoint.startswith("tcp://")
    if is_file or endpoint.removeprefix("tcp://").startswith(_LOOPBACK):
        url = endpoint
    else:
        url = _at(endpoint, host if theirs.is_bound else "*")
    return EventSource(
        url=url,
        replay_url=(replay_url if is_file else _at(replay_url, host)) if isinstance(replay_url, str) else None,
        topic=topic if isinstance(topic, str) else "",
        rank=rank,
        bind=not (is_file or (theirs.is_bound and url != endpoint)),
    )


def _at(url: str, host: str) -> str:
    """The port of a URL on a host."""
    _check(url)
    bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"tcp://{bracketed}:{url.rpartition(':')[2]}"


def _is_text(said: str) -> bool:
    """Whether it can be written as UTF-8: half a surrogate pair, which JSON can spell, cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in said)


def _check(url: str) -> None:
    if not url.isprintable():
        raise EventSourceInvalid(ascii(url), "it has characters that no address has")
    scheme = next((scheme for scheme in _SCHEMES if url.startswith(scheme)), None)
    if scheme is None or len(url) == len(scheme):
        raise EventSourceInvalid(url, "it is neither tcp://host:port nor ipc://path")
    if scheme == "tcp://":
        host, _, port = url.removeprefix(scheme).rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= _LAST_PORT:
            raise EventSourceInvalid(url, "it needs a host and a port")
