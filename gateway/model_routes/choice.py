"""Which arm a request goes to: a hash of what is to stay together, so that every replica says the same. Pure.

    key = conversation | beginning of the prompt | tenant | request         what is sticky
    point = first 8 bytes of SHA-256("prefixgate route 1", name, sticky, key), big-endian
    slot = point * sum of the weights >> 64                                 0 .. sum - 1, each 2^64 / sum of the points
    arm  = that in whose run of slots it is, the arms laid end to end in the order of the configuration

An arm's share of the points is its weight over the sum, to within 2^-64 times the number of arms. A key stays with its
arm while the weights stay; where weight is moved from the arm before last to the last, only keys that the last one
gains move. Where the arm of a key cannot be used (stopped, nobody there), that key alone is drawn anew among the
others: the keys of these stay, and with them what their endpoints have cached.

A split costs affinity no more than it must: two arms have two caches, so what many prompts share is computed once in
each; what only one conversation has is never in both.
"""

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Final

from gateway.model_routes.types import Arm, ModelRoute, Sticky
from gateway.types import InferenceRequest
from prefix_index.prompt import PromptView

_DOMAIN: Final = b"prefixgate route 1"
POINT_BITS: Final = 64
_POINT_BYTES: Final = POINT_BITS // 8
BEGINNING_CHARS: Final = 256
"""Of a prompt: whole blocks of an engine, and less than most system prompts have in common."""
_TURN_CHARS: Final = 2048
"""Of each message up to the first of the user's: what tells conversations apart, in bounded time."""
_ENDING_CHARS: Final = 256
"""Of a picture or a sound: what tells it from others."""
_MOST_PARTS: Final = 8
_MOST_MESSAGES: Final = 8
_OPENING_ROLES: Final = frozenset({"system", "developer"})


def arm_of(route: ModelRoute, key: bytes, unusable: Collection[str] = frozenset()) -> Arm:
    """The arm of a key; one of `unusable` (by name) only where there is no other. O(arms)."""
    chosen = arm_at(point_of(route, key), route.arms)
    if chosen.name in unusable:
        others = [arm for arm in route.arms if arm.name not in unusable and arm.weight]
        if others:
            return arm_at(point_of(route, key + b"\0again"), others)
    return chosen


def arm_at(point: int, arms: Sequence[Arm]) -> Arm:
    """The arm at one of 2^64 points. At least one has a weight."""
    slot = point * sum(arm.weight for arm in arms) >> POINT_BITS
    for arm in arms:
        slot -= arm.weight
        if slot < 0:
            return arm
    raise AssertionError("a slot is below the sum of the weights")


def point_of(route: ModelRoute, key: bytes) -> int:
    """Where a key falls, from 0 to 2^64 - 1."""
    told = b"\0".join((_DOMAIN, route.name.encode(), route.sticky.encode(), key))
    return int.from_bytes(sha256(told).digest()[:_POINT_BYTES], "big")


def key_of(request: InferenceRequest, sticky: Sticky) -> bytes:
    """What of a request is to stay together; the request's own id where it has nothing of the kind. O(1)."""
    tenant = request.tenant
    if sticky is Sticky.TENANT:
        return tenant.id.encode()
    if sticky is Sticky.CONVERSATION and request.labels.job_id is not None:
        return b"\0".join((tenant.id.encode(), b"job", request.labels.job_id.encode()))
    if sticky is not Sticky.REQUEST:
        said = _first_turn(request.prompt) if sticky is Sticky.CONVERSATION else _beginning(request.prompt)
        if said:
            return b"\0".join((tenant.share_group.encode(), said.encode(errors="replace")))
    return request.id.encode()


def _beginning(prompt: PromptView) -> str:
    """The first characters of a prompt, of its first message where it has some."""
    if prompt.messages:
        first = prompt.messages[0]
        return f"{first.get('role')}\0{_text(first.get('content'), BEGINNING_CHARS)[:BEGINNING_CHARS]}"
    return _plain(prompt, BEGINNING_CHARS)


def _first_turn(prompt: PromptView) -> str:
    """What all turns of a conversation begin with: its messages up to the first that is not the system's."""
    said = []
    for message in (prompt.messages or ())[:_MOST_MESSAGES]:
        role = message.get("role")
        said.append(f"{role}\0{_text(message.get('content'), _TURN_CHARS)}")
        if role not in _OPENING_ROLES:
            break
    return "\0".join(said) if said else _plain(prompt, _TURN_CHARS)


def _plain(prompt: PromptView, chars: int) -> str:
    """The beginning of a prompt that is a text, or token ids."""
    text = prompt.prompt
    if isinstance(text, list):
        return ",".join(map(str, text[:chars]))
    return "" if text is None else text[:chars]


def _text(content: object, chars: int) -> str:
    """The beginning of a message's content; of parts that are no text, what tells them from others."""
    if isinstance(content, str):
        return content[:chars]
    if not isinstance(content, list):
        return ""
    return "\0".join(_part(part, chars) for part in content[:_MOST_PARTS] if isinstance(part, dict))


def _part(part: Mapping[str, object], chars: int) -> str:
    """The beginning of a part's text, else length and end of a picture's address or data: files begin alike."""
    text = part.get("text")
    if isinstance(text, str):
        return text[:chars]
    inner = [one for value in part.values() for one in (value.values() if isinstance(value, dict) else (value,))]
    longest = max((one for one in inner if isinstance(one, str)), key=len, default="")
    return f"{len(longest)}\0{longest[-_ENDING_CHARS:]}"
