"""Holds each prompt against the earlier ones of its key, and counts where they part.

    look     pure      the closest earlier prompt --> parting: token, segment, tokens lost
    note     once      the prompt is an earlier one from now on; its profile counts

Both at the end of a request, when its client has all but the last bytes. A request that continues an earlier one, as
most do, costs its new messages; one that parts is compared part by part; a sample of those, and the first of each
place, line by line (sketches.py), which also names the cause (prefix_index.layout).
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from gateway.divergence.comparing import compared
from gateway.divergence.earlier import MOST_BYTES, RecentPrompts
from gateway.divergence.fingerprints import (
    UNREAD,
    Fingerprint,
    fingerprint_of,
    head_of,
    schemas_of,
    segment_name,
    text_of,
)
from gateway.divergence.profiles import MOST_TOOLS, PlaceCount, Profile, Profiles, Tools
from gateway.divergence.sketches import difference, pieces_of, sketch_of
from gateway.divergence.types import Change, Compared, Detail, Earlier, Looked, Parting, ProfileName, Sign
from gateway.types import InferenceRequest, Plan, TokenSource
from prefix_index import HASH_BYTES, Chain
from prefix_index.layout import Cause, spots

MOST_CONVERSATIONS: Final = 8192
"""Whose model and salt are remembered, to see either change."""
_LEAST_CHARS: Final = 256
"""Of a message or a plain prompt that is looked at closely."""
_MOST_JUDGED_CHARS: Final = 2000
_NOT_LOOKED_INTO: Final = 1024 * 1024
"""Bytes of a body: reading through a longer one would hold the event loop up."""


class Watch:
    """What this process has seen of prompts. Plain calls, no I/O, on the event loop."""

    def __init__(
        self,
        most_bytes: int = MOST_BYTES,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recent = RecentPrompts(most_bytes)
        self._profiles = Profiles()
        self._conversations: OrderedDict[int, tuple[str, bytes]] = OrderedDict()
        self._wall = wall
        self._monotonic = monotonic
        self.requests = 0
        """That were noted."""

    @property
    def kinds_of_calls(self) -> int:
        """How many profiles are kept."""
        return len(self._profiles)

    def look(self, request: InferenceRequest, plan: Plan) -> Looked | None:
        """Where a prompt parts from the closest earlier one of its key and model; None where its tokens are not known.

        Changes nothing.
        """
        if plan.source is None or not len(plan.chain):
            return None
        if len(request.body) > _NOT_LOOKED_INTO:
            return self._look_at_tokens(request, plan)
        key, model, chain = request.tenant.key_id, request.model, plan.chain
        made: list[Fingerprint] = []

        def asked_for() -> Fingerprint:
            made.append(fingerprint_of(request.prompt))
            return made[0]

        found = self._recent.closest(key, model, chain, asked_for)
        if found is None:
            parts = fingerprint_of(request.prompt)
            return Looked(_name(request, parts), parts)
        earlier, shared = found
        if shared * HASH_BYTES == len(earlier.hashes):
            parts = fingerprint_of(request.prompt, earlier.parts, chain.block_size)
            return Looked(_name(request, parts), parts, earlier, shared)
        if made:
            parts = made[0]
        elif 0 < earlier.parts.head_tokens <= shared * chain.block_size:
            parts = fingerprint_of(request.prompt, head_of(earlier.parts))
        else:
            parts = fingerprint_of(request.prompt)
        name = _name(request, parts)
        parting = self._parting(request, plan, name, parts, found) if shared < len(chain) else None
        if parting is not None and parting.change is Change.MESSAGE and not parts.head_tokens:
            parts = replace(parts, head_tokens=parting.token)
        return Looked(name, parts, earlier, shared, parting)

    def note(
        self, request: InferenceRequest, plan: Plan, looked: Looked, holder: str, cached_tokens: int | None = None
    ) -> None:
        """A prompt was computed; once for each. `cached_tokens` is what the engine reports of it, None: not told."""
        self.requests += 1
        parts, chain = looked.parts, plan.chain
        is_read = parts is not UNREAD
        at_s, in_bytes = self._monotonic(), plan.source is TokenSource.BYTES
        new = Earlier(chain.hashes, chain.block_size, plan.root, in_bytes, holder, at_s, parts)
        self._recent.keep(request.tenant.key_id, request.model, new)
        profile = self._profiles.of(looked.name)
        profile.requests += 1
        continues = looked.earlier is not None and looked.parting is None
        if continues or not is_read:
            return
        profile.begun += 1
        if parts.system:
            profile.saw_system(parts.system)
        self._learn_tools(profile, request)
        moved = self._moved(request, plan, parts)
        parting = moved or looked.parting
        if parting is None or not is_lost(parting, cached_tokens, chain.block_size):
            if looked.parting is None:
                self._learn_first(profile, request, parts)
            return
        profile.add(parting, self._wall())
        if parting.change is Change.TOOL_SCHEMA:
            self._learn_tools(profile, request, anew=True)
        if parting.detail is not None:
            profile.learn(parting.segment, parting.detail)
            self._profiles.sketched(profile)

    def signs(self) -> Iterable[Sign]:
        """What the traffic shows, place by place."""
        return (sign for profile in self._profiles.all() for sign in profile.signs())

    def profiles(self) -> Iterable[Profile]:
        """The kinds of calls that were seen, as they are counted."""
        return self._profiles.all()

    def _look_at_tokens(self, request: InferenceRequest, plan: Plan) -> Looked:
        """The same without a look at the parts of the prompt."""
        name, chain = _name(request, UNREAD), plan.chain
        found = self._recent.closest(request.tenant.key_id, request.model, chain)
        if found is None:
            return Looked(name, UNREAD)
        earlier, shared = found
        parted = shared < min(len(earlier.hashes) // HASH_BYTES, len(chain))
        parting = Parting(shared * chain.block_size, "", Change.GROWN, 0) if parted else None
        return Looked(name, UNREAD, earlier, shared, parting)

    def _parting(
        self, request: InferenceRequest, plan: Plan, name: ProfileName, parts: Fingerprint, found: tuple[Earlier, int]
    ) -> Parting:
        chain, (earlier, shared) = plan.chain, found
        token = shared * chain.block_size
        profile = self._profiles.find(name)
        tools_chars = 0 if profile is None or profile.tools is None else profile.tools.chars
        per_char = chain.prompt_tokens / max(parts.all_chars + tools_chars, 1)
        differs = compared(parts, earlier.parts, token / per_char)
        if plan.root != earlier.root:
            differs = _by_root(differs, plan, parts, earlier)
        if differs.change is Change.TEMPLATE:
            differs = _by_schema(differs, request, profile)
        elif differs.change is Change.MESSAGE and request.prompt.messages is None:
            differs = differs._replace(change=Change.PROMPT)
        segment = _segment(differs, request)
        if not _is_text(differs.change) or differs.place not in (None, 0):
            equal_chars = differs.equal_chars + (tools_chars if differs.tools_behind else 0)
            return Parting(token, segment, differs.change, _tokens_of(equal_chars, per_char, chain, token))
        chars = parts.system_chars if differs.place is None else parts.chars[differs.place]
        place = None if profile is None else profile.place(differs.change, segment)
        detail = None
        if (place is None or place.wants_look()) and (differs.change is Change.SYSTEM or chars >= _LEAST_CHARS):
            detail = _detail(differs.change, pieces_of(text_of(request.prompt, segment)), segment, profile, place)
        equal_chars = differs.equal_chars + _equal_inside(chars, place, detail)
        lost = _tokens_of(equal_chars + (tools_chars if differs.tools_behind else 0), per_char, chain, token)
        cause = detail.cause if detail is not None else None
        if cause is None and place is not None:
            cause = place.cause
        return Parting(token, segment, differs.change, lost, detail, cause if lost else None)

    def _learn_first(self, profile: Profile, request: InferenceRequest, parts: Fingerprint) -> None:
        """The first prompt of a profile is what later ones are held against."""
        segment = "system" if parts.system else segment_name(request.prompt, 0)
        if segment in profile.sketches:
            return
        pieces = pieces_of(text_of(request.prompt, segment))
        profile.learn(segment, Detail(sketch_of(pieces)))
        self._profiles.sketched(profile)

    def _learn_tools(self, profile: Profile, request: InferenceRequest, *, anew: bool = False) -> None:
        tools, before = request.prompt.tools, profile.tools
        if not tools or (before is not None and not anew):
            return
        place = profile.place(Change.TOOL_SCHEMA, "tools")
        if before is not None and place is not None and not place.wants_schemas():
            return
        schemas, chars = schemas_of(tools[:MOST_TOOLS])
        profile.tools = Tools(schemas, chars, 0.0 if before is None else _equal_share(schemas, before))

    def _moved(self, request: InferenceRequest, plan: Plan, parts: Fingerprint) -> Parting | None:
        """A conversation that was seen under another model before."""
        if request.prompt.messages is None or not parts.hashes:
            return None
        name = hash((request.tenant.id, parts.system, parts.hashes[0]))
        before = self._conversations.pop(name, None)
        self._conversations[name] = request.model, plan.root
        if len(self._conversations) > MOST_CONVERSATIONS:
            self._conversations.popitem(last=False)
        if before is None or before[0] == request.model or before[1] == plan.root or len(parts.hashes) == 1:
            return None  # the same question to two models is a comparison
        share = 1 - parts.chars[-1] / max(parts.all_chars, 1)
        return Parting(0, "model", Change.MODEL, round(share * plan.chain.prompt_tokens))


def is_lost(parting: Parting, cached_tokens: int | None, block_size: int) -> bool:
    """Whether an engine's report agrees that the prompt was new from there on: else it knew a closer one than we do."""
    return cached_tokens is None or cached_tokens <= parting.token + block_size


def cause_of(piece: str, otherwise: Cause) -> Cause:
    """Why a piece of text is another one than before: the surest of what changes in it by its form."""
    found = spots(piece[:_MOST_JUDGED_CHARS])
    return max(found, key=lambda spot: (spot.certainty, -spot.start)).cause if found else otherwise


def _name(request: InferenceRequest, parts: Fingerprint) -> ProfileName:
    return ProfileName(request.tenant.id, request.model, request.route_path, parts.toolset)


def _by_root(found: Compared, plan: Plan, parts: Fingerprint, earlier: Earlier) -> Compared:
    """Prompts that cannot share a cache, although they begin alike."""
    begins_alike = parts.system == earlier.parts.system and parts.hashes[:1] == earlier.parts.hashes[:1]
    if not begins_alike:
        return found
    if (plan.source is TokenSource.BYTES) != earlier.in_bytes:
        return Compared(Change.TOKENIZER)
    return Compared(Change.SALT, None, min(parts.all_chars, earlier.parts.all_chars))


def _by_schema(found: Compared, request: InferenceRequest, profile: Profile | None) -> Compared:
    """Where all else is equal and there are tools, it is these that are described in other words."""
    tools = request.prompt.tools
    if not tools or profile is None or profile.tools is None:
        return found
    known, equal_share = profile.tools, profile.tools.equal_share
    place = profile.place(Change.TOOL_SCHEMA, "tools")
    if place is None or place.wants_schemas():
        schemas, _ = schemas_of(tools[:MOST_TOOLS])
        if schemas == known.schemas:
            return found
        equal_share = _equal_share(schemas, known)
    return Compared(Change.TOOL_SCHEMA, None, found.equal_chars + round(known.chars * equal_share))


def _equal_share(schemas: Mapping[str, int], before: Tools) -> float:
    return sum(before.schemas.get(name) == schema for name, schema in schemas.items()) / len(schemas)


def _is_text(change: Change) -> bool:
    return change is Change.MESSAGE or change is Change.SYSTEM or change is Change.PROMPT


def _segment(found: Compared, request: InferenceRequest) -> str:
    if found.place is not None:
        return segment_name(request.prompt, found.place)
    match found.change:
        case Change.TOOL_ORDER | Change.TOOL_SCHEMA | Change.TOOL_SET:
            return "tools"
        case _:
            return str(found.change)


def _detail(
    change: Change, pieces: list[str], segment: str, profile: Profile | None, place: PlaceCount | None
) -> Detail:
    """A part that changed, line by line."""
    sketch = sketch_of(pieces)
    earlier = None if profile is None else profile.likeliest(segment, pieces)
    differs = None if earlier is None else difference(pieces, earlier)
    if differs is None:
        return Detail(sketch, likened=earlier)
    otherwise = Cause.UNKNOWN if change is Change.SYSTEM else Cause.CONTENT
    cause = cause_of(pieces[differs.place], otherwise) if place is None or place.wants_cause() else None
    return Detail(sketch, differs.offset, differs.equal_chars, cause, earlier)


def _equal_inside(chars: int, place: PlaceCount | None, detail: Detail | None) -> int:
    """Characters of a changed part of so many that are as before: as seen, else by what the place mostly has."""
    if detail is not None:
        return detail.equal_chars
    if place is None or place.equal_share is None or place.offsets is None:
        return 0
    return round(place.equal_share * max(chars - place.offsets[0], 0))


def _tokens_of(equal_chars: int, per_char: float, chain: Chain, token: int) -> int:
    """What is as before, in tokens; no more than come behind the change."""
    return min(round(equal_chars * per_char), max(chain.prompt_tokens - token, 0)) if equal_chars else 0
