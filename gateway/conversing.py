"""Whether anybody comes back: whose requests hold earlier answers, and so what an answer's next turn is worth.

    request ──> holds an answer already? ──> yes, the conversation goes on: learn from its next answer as well
                        │ no
                        v
                share of those that did, of this tenant and model ──> below a hundredth: nobody would ask for it

The second turn of a conversation brings the first one's answer with it, so requests themselves tell how often answers
are asked for again. Where a service only classifies or extracts, none ever is, and learning from each answer would be
a fifth of what a request costs the gateway's processor (2.3 KB, 16 at once, in process).

The share is a moving one that begins at one: the first three hundred answers are learned from in any case, and a single
request that goes on has the next thirty learned from.
"""

from typing import Final

from gateway.types import InferenceRequest

_WEIGHT: Final = 1 / 64
_WORTHWHILE: Final = 0.01
"""Below, what is lost is the first answer's tokens of one conversation in a hundred requests; its prompt is known."""
_KEPT: Final = 4096
"""Tenants and models; the one not heard of for longest is taken for new again."""
_ANSWERS: Final = frozenset({"assistant", "tool"})


class Conversing:
    """The share of requests that go on, by tenant and model. Owned by the loop."""

    def __init__(self) -> None:
        self._shares: dict[tuple[str, str], float] = {}

    def goes_on(self, request: InferenceRequest) -> bool:
        """Take a request in; whether its answer is likely enough to be asked for again. O(messages)."""
        messages = request.prompt.messages
        if messages is None:
            return True  # text without turns does not tell
        does = any(message.get("role") in _ANSWERS for message in messages)
        whose = (request.tenant.id, request.model)
        share = self._shares.pop(whose, 1.0)
        self._shares[whose] = share = share + (does - share) * _WEIGHT
        if len(self._shares) > _KEPT:
            del self._shares[next(iter(self._shares))]
        return does or share >= _WORTHWHILE
