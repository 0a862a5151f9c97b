"""Prefill and decode on two engines: what one has computed of a prompt is carried to the other.

    client --body, do_remote_decode--> P: computes the prompt, one token; a copy of its whole blocks waits under a name
           <--kv_transfer_params------
           --body, those params------> D --POST /kv_transfer/{name}--> P: the copy, once
           <--the answer-------------  D: the blocks enter its prefix cache; what is behind them it computes itself

The words are those of vLLM's NIXL connector; the way is plain HTTP, with a file of safetensors for a body.

blocks.py      blocks out of a cache, into a cache, and as bytes: on the engine's thread, or pure
fetching.py    a copy from an engine that may hang, lie or send without end
transfers.py   both sides on the event loop: copies that wait, copies that are fetched
"""

from backends.reference.apart.blocks import Carried, adopted, copied
from backends.reference.apart.transfers import Transfers

__all__ = ["Carried", "Transfers", "adopted", "copied"]
