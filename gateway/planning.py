"""Steps 2 to 4: a request becomes segments, token ids and a chain.

    messages, tools --template--> text --tokenizer--> token ids --root--> chain
         |                                               ^
         |--(no local tokenizer, or not believed)--> the engine's /tokenize
         `--(neither)--> its bytes, four to a "token": loud, in /health, a metric and each decision

Local tokens are not believed where the engine's reports have contradicted them (parity.py), and not even made for
models whose engines render chats by code of their own. What takes long (a long prompt for the first time) is done in
a thread, so that the loop stays free.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec, Protocol, TypeVar

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from backends import EndpointSnapshot
from gateway.parity import ParityBook, shape_of
from gateway.roots import base_of, root_of_request
from gateway.types import InferenceRequest, Plan, Reason, TokenSource
from prefix_index import (
    TOKEN_BYTES,
    Chain,
    ChainMemo,
    TemplateFailed,
    TokenIds,
    UnsupportedContent,
    chain_of,
)
from prefix_index.prompt import ModelText, PromptView, Unsupported, bytes_as_tokens, given_ids, renders_long
from prefix_index.segments import Encoding

P = ParamSpec("P")
T = TypeVar("T")

_Kind = tuple[TokenSource, int]
"""Where ids are from, and how many make a block."""

_ENGINE_KNOWS: Final = frozenset({Unsupported.CUSTOM_ENCODER, Unsupported.NO_TOKENIZER, Unsupported.TOOLS})
_TEXT_BYTES_PER_TOKEN: Final = 4
"""Of English text, roughly."""
LOOP_SAFE_BODY_BYTES: Final = 128 * 1024
"""A body whose prompt may be rendered, looked up and joined on the event loop: 1 ms where it is known."""
LOOP_SAFE_TOKENS_BYTES: Final = 1024 * 1024
"""Ids whose chain may be hashed on the event loop when nothing of it is known: under 2 ms at 0.07 µs a block of 16."""

MOST_MODELS: Final = 256
"""Of which something is remembered; of others it is looked up again."""
MOST_ROOTS: Final = 4096
"""Roots that are remembered for each model."""


class EngineTokenizer(Protocol):
    """Asks an engine for the token ids of a prompt."""

    async def tokens_of(
        self, model: str, prompt: PromptView, endpoints: list[EndpointSnapshot], space: int = 0
    ) -> TokenIds | None:
        """Token ids, or None where no engine could say. What was asked in another space is asked again."""


class _Tokens(msgspec.Struct, frozen=True):
    """Token ids and where they are from. `exact`: they are the engine's own, each of them and in number."""

    ids: TokenIds
    source: TokenSource
    exact: bool = True
    local_tokens: int | None = None


class _Known(msgspec.Struct):
    """What a model's plans have in common while the same endpoints serve it: `base` is the model whose tokenizer it has
    (its own name, or an adapter's base), roots are by kind of tokens and salt."""

    endpoints: list[EndpointSnapshot]
    base: str
    roots: dict[tuple[_Kind, str], bytes] = {}


class Planner:
    """Prompts to plans. `local` holds the tokenizer and template of each model that has them here; `salted` says
    whether engines are given the salts of share groups."""

    def __init__(
        self,
        local: Mapping[str, ModelText],
        engine: EngineTokenizer,
        parity: ParityBook,
        *,
        salted: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._local = local
        self._salted = salted
        self._engine = engine
        self._parity = parity
        self._memo = ChainMemo()
        self._known: dict[str, _Known] = {}
        """Of the models that were asked for last, adapters among them: bounded, since these come and go."""
        self._monotonic = monotonic

    async def plan(
        self,
        request: InferenceRequest,
        endpoints: list[EndpointSnapshot],
        block_size: int,
        tokenizers: list[EndpointSnapshot] | None = None,
    ) -> Plan:
        """The chain of a request, as good as it can be had; never raises for what the engine should judge. Of the
        `endpoints` only `tokenizers` are asked for tokens, where these are named."""
        if request.blind is not None:
            return _without_tokens(request, block_size, request.blind)
        is_long, prompt = _is_long(request), request.prompt
        shape = await _off_loop(is_long, shape_of, request.route.value, prompt)
        try:
            kept = (shape, self._space(request))
            tokens = await self._tokens(request, endpoints, kept, tokenizers or endpoints, is_long=is_long)
        except UnsupportedContent:
            return _without_tokens(request, block_size, Reason.UNSUPPORTED_CONTENT)
        except TemplateFailed:
            return _without_tokens(request, block_size, Reason.NOT_TOKENIZED)
        request.marks.tokens_s = self._monotonic()
        root = self._root(request, endpoints, (tokens.source, block_size))
        chain = await self._chain(tokens, root, block_size)
        request.marks.planned_s = self._monotonic()
        short = None if len(chain) else Reason.SHORT_PROMPT
        return Plan(
            *(chain, tokens.source, short),
            exact=tokens.exact,
            shape=shape,
            local_tokens=tokens.local_tokens,
            root=root,
            base=self._known_of(request.model, endpoints).base,
            space=self._space(request),
        )

    def _space(self, request: InferenceRequest) -> int:
        """Where it is remembered what a share group has had tokenised: apart from what others have, since it shows in
        the time that a prompt takes. Where engines' caches are shared, this one is."""
        return xxh3_64_intdigest(request.tenant.salt.encode()) if self._salted else 0

    def is_exact(self, model: str, endpoints: list[EndpointSnapshot]) -> bool:
        """Whether the prompts of a model are tokenised as its engine does."""
        text = self.text_of(model, endpoints)
        can_ask = any(e.facts is not None and e.facts.has_tokenize for e in endpoints)
        return can_ask or (text is not None and text.needs_engine is None)

    async def count_tokens(self, model: str, text: str, endpoints: list[EndpointSnapshot]) -> int | None:
        """Number of tokens of a text on its own; None where neither a tokenizer nor an engine can say."""
        local = self.text_of(model, endpoints)
        if local is not None and local.tokenizer is not None:
            return await asyncio.to_thread(local.count_tokens, text)
        tokens = await self._engine.tokens_of(model, PromptView(prompt=text), endpoints)
        return None if tokens is None else len(tokens) // TOKEN_BYTES

    def text_of(self, model: str, endpoints: list[EndpointSnapshot]) -> ModelText | None:
        """Tokenizer and template of a model, or of the base of an adapter, in the way of the engine that serves it."""
        text = self._local.get(model) or self._local.get(base_of(model, endpoints) or "")
        if text is None or not endpoints:
            return text
        facts = endpoints[0].facts
        return text if facts is None else text.for_engine(facts.engine)

    async def _tokens(
        self,
        request: InferenceRequest,
        endpoints: list[EndpointSnapshot],
        kept: tuple[str, int],
        tokenizers: list[EndpointSnapshot],
        *,
        is_long: bool,
    ) -> _Tokens:
        """`kept`: the shape under which the counts are compared, and the space in which the tokens are remembered.
        Raises `UnsupportedContent` or `TemplateFailed` where there is no way to the tokens."""
        base, (shape, space) = self._known_of(request.model, endpoints).base, kept
        text = self.text_of(request.model if request.model in self._local else base, endpoints)
        believed = not self._parity.is_degraded(base, shape)
        local = None if text is None else await self._local_tokens(text, request, space, is_long=is_long)
        if local is not None and believed:
            return local
        given = await _off_loop(is_long, given_ids, request.prompt)
        asked = given or await self._engine.tokens_of(request.model, request.prompt, tokenizers, space)
        counted = len(local.ids) // TOKEN_BYTES if local is not None and local.exact else None
        if asked is not None:
            return _Tokens(asked, TokenSource.ENGINE, local_tokens=counted)
        if local is not None:
            return replace(local, exact=False, local_tokens=counted)
        ids = await _off_loop(is_long, bytes_as_tokens, request.prompt)
        return _Tokens(ids, TokenSource.BYTES, exact=False)

    async def _local_tokens(
        self, text: ModelText, request: InferenceRequest, space: int, *, is_long: bool
    ) -> _Tokens | None:
        """None where only the engine has the tokenizer, or renders by code of its own."""
        try:
            if is_long:
                return await asyncio.to_thread(self._rendered_here, text, request, space)
            encoding, exact = self._begun(text, request, space)
            if encoding.is_long:
                await asyncio.to_thread(encoding.compute)
            else:
                encoding.compute()
            return _Tokens(encoding.finish(), TokenSource.LOCAL, exact)
        except UnsupportedContent as error:
            if error.kind in _ENGINE_KNOWS:
                return None
            raise

    def _rendered_here(self, text: ModelText, request: InferenceRequest, space: int) -> _Tokens:
        encoding, exact = self._begun(text, request, space)
        encoding.compute()
        return _Tokens(encoding.finish(), TokenSource.LOCAL, exact)

    def _begun(self, text: ModelText, request: InferenceRequest, space: int) -> tuple[Encoding, bool]:
        rendered = text.prompt_of(request.prompt)
        request.marks.rendered_s = self._monotonic()
        special = request.prompt.add_special_tokens
        return text.begin_prompt(rendered, add_special_tokens=special, space=space), rendered.exact

    def _root(
        self, request: InferenceRequest, endpoints: list[EndpointSnapshot], kind: tuple[TokenSource, int]
    ) -> bytes:
        """As `root_of_request`, remembered while the fleet is the same: the list of who serves a model is, too."""
        source, block_size = kind
        salt = request.tenant.salt if self._salted else ""
        roots = self._known_of(request.model, endpoints).roots
        root = roots.get((kind, salt)) if request.adapter is None else None
        if root is None:
            root = root_of_request(request, endpoints, source, block_size, salt)
            if request.adapter is None:
                if len(roots) >= MOST_ROOTS:  # clients may have salts of their own
                    roots.clear()
                roots[kind, salt] = root
        return root

    def _known_of(self, model: str, endpoints: list[EndpointSnapshot]) -> _Known:
        """O(1) while the fleet is the same, else O(endpoints × models)."""
        known = self._known.get(model)
        if known is None or known.endpoints is not endpoints:
            self._known.pop(model, None)
            known = self._known[model] = _Known(endpoints, base_of(model, endpoints) or model)
            if len(self._known) > MOST_MODELS:
                del self._known[next(iter(self._known))]
        return known

    async def _chain(self, tokens: _Tokens, root: bytes, block_size: int) -> Chain:
        if len(tokens.ids) > LOOP_SAFE_TOKENS_BYTES:  # the memo belongs to the loop
            return await asyncio.to_thread(chain_of, tokens.ids, root, block_size)
        return self._memo.chain_of(tokens.ids, root, block_size)


def _is_long(request: InferenceRequest) -> bool:
    """Whether what is done with the prompt may take longer than 2 ms, known or not, and so belongs in a thread."""
    return len(request.body) > LOOP_SAFE_BODY_BYTES or renders_long(request.prompt)


async def _off_loop(is_long: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` gives, made in a thread where the prompt is long."""
    return await asyncio.to_thread(work, *args, **kwargs) if is_long else work(*args, **kwargs)


def _without_tokens(request: InferenceRequest, block_size: int, reason: Reason) -> Plan:
    """No blocks, and a length that only weighs the request as load."""
    return Plan(Chain(b"", block_size, len(request.body) // _TEXT_BYTES_PER_TOKEN), None, reason, exact=False)
