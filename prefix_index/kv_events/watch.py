"""What can be seen of a publisher from outside: is anybody there, and does it speak to us?

A subscriber hears nothing when the address is wrong, when both ends connect or both bind, when the topic is another,
and when the engine publishes nothing. So: the connection says who is there, the topics that arrive say who speaks, and
an engine that computed a prompt since its last word should have said so.
"""

from collections.abc import Callable

from prefix_index.kv_events.feed_types import FeedOptions
from prefix_index.kv_events.sources import EventSource
from prefix_index.kv_events.subscriber import Inbox

_NEVER = float("-inf")


class Silence:
    """Whether an engine works and says nothing of it."""

    def __init__(self, clock: Callable[[], float], options: FeedOptions) -> None:
        self._clock = clock
        self._options = options
        self._tokens = 0
        self._since_s = _NEVER
        self._heard_at_s = _NEVER

    def worked(self, computed_tokens: int, took_s: float, heard_at_s: float) -> None:
        """It has computed so many tokens for a request sent `took_s` ago; its last word came at `heard_at_s`."""
        now_s = self._clock()
        if self._heard_at_s != heard_at_s:
            self._tokens, self._heard_at_s = 0, heard_at_s
        if heard_at_s >= now_s - took_s:
            return  # what it said meanwhile may have been of this
        if not self._tokens:
            self._since_s = now_s
        self._tokens += computed_tokens

    def lasts(self, heard_at_s: float) -> bool:
        """Whether it has lasted too long, its last word having come at `heard_at_s`."""
        return (
            self._tokens >= self._options.silent_tokens
            and self._heard_at_s == heard_at_s
            and self._clock() - self._since_s >= self._options.silent_after_s
        )


class Watch:
    """Looks at one inbox. Times are of the connection's clock."""

    def __init__(self, source: EventSource, inbox: Inbox, options: FeedOptions) -> None:
        self._source = source
        self._inbox = inbox
        self._options = options
        self._silence = Silence(inbox.connection.clock, options)

    @property
    def is_connected(self) -> bool:
        """Whether a publisher is there."""
        return self._inbox.connection.publishers > 0

    @property
    def is_away(self) -> bool:
        """Whether nobody has been there for so long that it is worth saying."""
        connection = self._inbox.connection
        return not self.is_connected and (connection.refusal is not None or connection.clock() >= self.away_at_s)

    @property
    def away_at_s(self) -> float:
        """When it will be away, unless somebody comes; infinity while somebody is there."""
        return float("inf") if self.is_connected else self._inbox.connection.since_s + self._options.away_after_s

    @property
    def is_silent(self) -> bool:
        """Whether it is there, works, and nothing of that arrives."""
        return self._has_strangers_alone or self._silence.lasts(self._inbox.last_at_s)

    def worked(self, computed_tokens: int, took_s: float) -> None:
        """See `Feed.worked`."""
        self._silence.worked(computed_tokens, took_s, self._inbox.last_at_s)

    def why_away(self) -> str:
        """What it may come from and what would help."""
        url, connection = self._source.url, self._inbox.connection
        if connection.refusal is not None:
            return f"{url} cannot be used: {connection.refusal}"
        if connection.is_foreign:
            return f"what is at {url} does not speak ZeroMQ as a publisher"
        if self._source.is_bound:
            return (
                f"nobody connects to {url}; if the engine was given an address with * it waits for us: "
                "give the address of the engine, without *"
            )
        return (
            f"nobody listens at {url}; if the engine was given this address it connects out: give a URL with * to bind"
        )

    def why_silent(self) -> str:
        """What it may come from and what would help."""
        url, connection = self._source.url, self._inbox.connection
        if connection.strangers and not self._inbox.received:
            topics = ", ".join(map(repr, connection.strangers))
            return f"what arrives at {url} has other topics: {topics} instead of {self._source.topic!r}"
        return (
            f"the engine computes, and nothing arrives at {url}: are KV events and prefix caching enabled there, "
            "and is it this engine that publishes at this address?"
        )

    def why_partial(self) -> str:
        """What it may come from and what would help."""
        connection = self._inbox.connection
        if connection.publishers > 1 and connection.inboxes == 1 and not self._source.topic:
            return f"{connection.publishers} publishers speak at {self._source.url}; give each a topic of its own"
        if self._source.replay_url is None:
            return "what the cache held before is not known; a replay_endpoint of the engine would tell"
        return f"what the cache held before is not known: no replay from {self._source.replay_url} reaches that far"

    @property
    def _has_strangers_alone(self) -> bool:
        connection = self._inbox.connection
        return connection.inboxes == 1 and bool(connection.strangers) and not self._inbox.received
