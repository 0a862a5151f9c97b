"""Steps 2 to 4: a request becomes segments, token ids and a chain.

    messages, tools --template--> text --tokenizer--> token ids --root--> chain
         |                                               ^
         |--(no local tokenizer)--> the engine's /tokenize
         `--(neither)--> its bytes, four to a "token": loud, in /health, a metric and each decision

What takes long (a long prompt for the first time) is done in a thread, so that the loop stays free.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import msgspec

from backends import EndpointSnapshot
from gateway.types import InferenceRequest, Plan, Reason, TokenSource
from prefix_index import TOKEN_BYTES, Chain, TemplateFailed, TokenIds, UnsupportedContent, chain_of, prompt_root
from prefix_index.prompt import ContentFormat, ModelText, PromptView, Renderer, template_messages

_ENGINE_FINGERPRINT = b"engine"
_BYTES_FINGERPRINT = b"bytes"
_TEXT_BYTES_PER_TOKEN = 4
"""Of English text, roughly."""


class EngineTokenizer(Protocol):
    """Asks an engine for the token ids of a prompt."""

    async def tokens_of(self, model: str, prompt: PromptView, endpoints: list[EndpointSnapshot]) -> TokenIds | None:
        """Token ids, or None where no engine could say."""


class Planner:
    """Prompts to plans. `local` holds the tokenizer and template of each model that has them here."""

    def __init__(self, local: Mapping[str, ModelText], engine: EngineTokenizer) -> None:
        self._local = local
        self._engine = engine

    async def plan(self, request: InferenceRequest, endpoints: list[EndpointSnapshot], block_size: int) -> Plan:
        """The chain of a request, as good as it can be had; never raises for what the engine should judge."""
        text = self._local.get(request.model)
        salt = request.tenant.salt.encode()
        try:
            if text is not None:
                tokens, fingerprint, source = (
                    await _local_tokens(text, request.prompt),
                    text.fingerprint,
                    TokenSource.LOCAL,
                )
            else:
                tokens, fingerprint, source = await self._remote_tokens(request, endpoints)
        except UnsupportedContent:
            return Plan(_guessed(request, block_size), TokenSource.LOCAL, Reason.UNSUPPORTED_CONTENT)
        except TemplateFailed:
            return Plan(_guessed(request, block_size), TokenSource.LOCAL, Reason.NOT_TOKENIZED)
        root = prompt_root(model=request.model, adapter=None, fingerprint=fingerprint, block_size=block_size, salt=salt)
        chain = chain_of(tokens, root, block_size)
        return Plan(chain, source, None if len(chain) else Reason.SHORT_PROMPT)

    def is_exact(self, model: str, endpoints: list[EndpointSnapshot]) -> bool:
        """Whether the prompts of a model are tokenised as its engine does."""
        return model in self._local or any(e.facts is not None and e.facts.has_tokenize for e in endpoints)

    async def count_tokens(self, model: str, text: str, endpoints: list[EndpointSnapshot]) -> int | None:
        """Number of tokens of a text on its own; None where neither a tokenizer nor an engine can say."""
        local = self._local.get(model)
        if local is not None:
            return await asyncio.to_thread(local.count_tokens, text)
        tokens = await self._engine.tokens_of(model, PromptView(prompt=text), endpoints)
        return None if tokens is None else len(tokens) // TOKEN_BYTES

    async def _remote_tokens(
        self, request: InferenceRequest, endpoints: list[EndpointSnapshot]
    ) -> tuple[TokenIds, bytes, TokenSource]:
        _refuse_what_tokens_do_not_tell(request.prompt)
        tokens = await self._engine.tokens_of(request.model, request.prompt, endpoints)
        if tokens is not None:
            return tokens, _ENGINE_FINGERPRINT, TokenSource.ENGINE
        return bytes_as_tokens(request.prompt), _BYTES_FINGERPRINT, TokenSource.BYTES


def bytes_as_tokens(prompt: PromptView) -> TokenIds:
    """The canonical serialisation of a prompt, padded to whole "tokens" of four bytes, in the order of rendering."""
    ordered = (prompt.tools, prompt.documents, prompt.messages, prompt.prompt)
    data = msgspec.json.encode(ordered)
    return TokenIds(data + b" " * (-len(data) % TOKEN_BYTES))


def _refuse_what_tokens_do_not_tell(prompt: PromptView) -> None:
    """Raises `UnsupportedContent` for parts that are not text: two pictures can have the same token ids."""
    if prompt.messages is not None:
        template_messages(prompt.messages, ContentFormat.STRING, Renderer.PLAIN)


async def _local_tokens(text: ModelText, prompt: PromptView) -> TokenIds:
    long = text.renders_long(prompt)
    rendered = await asyncio.to_thread(text.prompt_of, prompt) if long else text.prompt_of(prompt)
    encoding = text.begin_prompt(rendered, add_special_tokens=prompt.add_special_tokens)
    if encoding.is_long:
        await asyncio.to_thread(encoding.compute)
    else:
        encoding.compute()
    return encoding.finish()


def _guessed(request: InferenceRequest, block_size: int) -> Chain:
    """No blocks, and a length that only weighs the request as load."""
    return Chain(b"", block_size, len(request.body) // _TEXT_BYTES_PER_TOKEN)
