"""The simulated engine behind a real HTTP port, with the face of a real engine, strict, and faults to order.

    with SimulatedServer(ServerSpec(dialect="vllm", version="0.23.0", speed=20)) as server:
        server.url                       # http://127.0.0.1:...; 20 seconds of the engine go by in one of ours
        server.change(frozen=True)       # faults by name, see `Faults`; `server.change(frozen=False)` ends it
        server.restart()                 # same port, nothing cached; `kill()` and `start()` are its halves
        server.state(), server.records() # what it computed, for who audits a gateway

In a process of its own, to be killed and stopped: `python -m backends.simulated.serving --dialect sglang --port 0
--control-port 0 ...` prints `{"url", "control_url"}` and serves until a signal; `control` says what the control port
understands.

Dialects: `vllm` (0.32, or 0.23 by `version`), `sglang`, `trtllm`, `tgi`, `llamacpp`, `ollama`, `openai`. What the real
engine refuses is refused, with its status and its error's shape: unknown models and fields, salts, priorities, ranks
that are not there, prompts that are too long. Not there: images, tool calls, log probabilities, stop strings (all
accepted and without effect), the newer routes (`/v1/responses`, `/v1/messages`, embeddings), events of the cache.

Answers follow from the prompt and show where they stand (`text`): `expected_text(prompt, tokens)` is what must have
come, and a prompt that ends with the beginning of its own answer is continued where it was cut off.

Timing is the simulated engine's, block by block and step by step, under a clock that is `speed` times ours: prefill
counts uncached tokens, decoding slows down with the batch, requests wait when the cache is full, blocks are evicted.
"""

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.faces import FACES
from backends.simulated.serving.faults import Faults, WrongUsage
from backends.simulated.serving.server import SimulatedServer
from backends.simulated.serving.text import expected_text, is_whole
from backends.simulated.serving.types import Record, ServerSpec

__all__ = [
    "DIALECTS",
    "Faults",
    "Record",
    "Refused",
    "ServerSpec",
    "SimulatedServer",
    "WrongUsage",
    "expected_text",
    "is_whole",
]

DIALECTS = tuple(FACES)
"""Names that `ServerSpec.dialect` may have."""
