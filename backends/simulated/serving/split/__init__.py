"""Prompts computed on one engine, answers written on another: three engines' protocols, each strict.

Here and in the modules below P is the engine that computes the prompt (prefill), D the one that writes the answer
(decode).

    vLLM, NIXL          P answers with `kv_transfer_params`, D gets them unchanged and fetches     one after the other
    SGLang, bootstrap   both legs with one room, D finds P by host, port and room                  at the same time
    TensorRT-LLM        P answers with `disaggregated_params`, D gets them and the token ids       one after the other

What D is given leads it to a port of P, its *side channel*, and there it asks for the prompt: what P did not issue,
what was fetched before, was changed, or has expired, is refused. Blocks stay pinned at P until they are fetched or
expire.
"""

from backends.simulated.serving.split.channel import Channel
from backends.simulated.serving.split.depot import Depot
from backends.simulated.serving.split.leg import WHOLE, Leg

__all__ = ["WHOLE", "Channel", "Depot", "Leg"]
