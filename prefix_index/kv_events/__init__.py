"""What engines say of their own caches, in their own words, and what that means in our chains.

    EventSource ──EventSockets──> messages ──Feed──> Mirror ──changes──> index          one Feed for each cache
                                   poll ──PollFeed──┘   └── Leases: one replica for each engine

EventSource      where an engine's messages come from; who binds                 (sources)
EventSockets     the sockets of one process                                      (subscriber)
Feed, PollFeed   from an engine into the index: replays, restarts, states        (feed, polling)
Leases           which replica consumes the events of which engine               (lease)
decode_batch     payload of vLLM or SGLang -> Batch                              (payloads)
PollDecoder      answers of TensorRT-LLM -> PolledBatch                          (trtllm)
SequenceTracker  is a message new, old, ahead of a gap, or of another process?   (sequence)
Mirror           what one cache holds, by the engine's hashes and by our chains  (mirror)

A feed's parts: asking again (replay, catching_up), applying and telling (follower), looking at the publisher from
outside (watch). The mirror's: blocks and chains (forest) in little memory (slot_table), copies in each memory (copies),
and the difference between what is to be had and what the index was told (reach).
"""

from prefix_index.kv_events.feed import Feed, FeedParts
from prefix_index.kv_events.feed_types import EventSink, FeedCounters, FeedOptions, FeedState
from prefix_index.kv_events.lease import Lease, LeaseOptions, Leases
from prefix_index.kv_events.mirror import Mirror
from prefix_index.kv_events.payloads import decode_batch
from prefix_index.kv_events.polling import Poll, PolledCache, PollFeed
from prefix_index.kv_events.sequence import Arrival, SequenceTracker
from prefix_index.kv_events.sources import EventSource, source_of_engine, url_of_rank
from prefix_index.kv_events.subscriber import EventSockets
from prefix_index.kv_events.trtllm import PollDecoder
from prefix_index.kv_events.types import (
    Batch,
    Change,
    Clear,
    Cleared,
    Event,
    Forget,
    Message,
    Moved,
    Observe,
    PolledBatch,
    Removed,
    Stored,
)

__all__ = [
    "Arrival",
    "Batch",
    "Change",
    "Clear",
    "Cleared",
    "Event",
    "EventSink",
    "EventSockets",
    "EventSource",
    "Feed",
    "FeedCounters",
    "FeedOptions",
    "FeedParts",
    "FeedState",
    "Forget",
    "Lease",
    "LeaseOptions",
    "Leases",
    "Message",
    "Mirror",
    "Moved",
    "Observe",
    "Poll",
    "PollDecoder",
    "PollFeed",
    "PolledBatch",
    "PolledCache",
    "Removed",
    "SequenceTracker",
    "Stored",
    "decode_batch",
    "source_of_engine",
    "url_of_rank",
]
