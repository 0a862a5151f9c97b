"""What engines say of their own caches, in their own words, and what that means in our chains.

decode_batch     payload of vLLM or SGLang -> Batch                              (payloads)
PollDecoder      answers of TensorRT-LLM -> PolledBatch                          (trtllm)
SequenceTracker  is a message new, old, ahead of a gap, or of another process?   (sequence)
Mirror           what one cache holds, by the engine's hashes and by our chains  (mirror)

The mirror's parts: blocks and chains (forest) in little memory (slot_table), copies in each memory (copies), and the
difference between what is to be had and what the index was told (reach).
"""

from prefix_index.kv_events.mirror import Mirror
from prefix_index.kv_events.payloads import decode_batch
from prefix_index.kv_events.sequence import Arrival, SequenceTracker
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
    "Forget",
    "Message",
    "Mirror",
    "Moved",
    "Observe",
    "PollDecoder",
    "PolledBatch",
    "Removed",
    "SequenceTracker",
    "Stored",
    "decode_batch",
]
