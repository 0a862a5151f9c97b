"""Token ids from the engine itself, for models whose tokenizer is not here: `POST /tokenize` of any of its endpoints.

Answers are kept by the digest of the question, so the same prompt is asked once while its answer is kept; a question
that fails or takes longer than `DEADLINE_S` gives None, and the caller goes on without. So does an answer of any other
form than token ids, and one too long to be an answer: what an engine says here is never the client's fault.
"""

import asyncio
from array import array
from collections.abc import Callable
from typing import Final

import msgspec

from backends import (
    BackendError,
    Deadlines,
    EndpointConfig,
    EndpointSnapshot,
    UpstreamClient,
    UpstreamRequest,
)
from gateway.surrogates import UNREADABLE, decode
from prefix_index import SegmentCache, TokenIds, pack
from prefix_index.prompt import PromptView, has_media

DEADLINE_S: Final = 1.0
KiB: Final = 1024
MiB: Final = 1024 * KiB
MOST_KEPT_BYTES: Final = 64 * MiB
BYTES_PER_TOKEN: Final = 16
"""Of an answer, at most: engines write an id of six digits, a comma, maybe a space."""
TEMPLATE_TOKENS: Final = 64 * KiB
"""What a chat template may add to the text of a prompt."""
MOST_TOKENS: Final = MiB
"""No tokenizer makes more of a text within the deadline, and few models take as many."""
LOOP_SAFE_ANSWER_BYTES: Final = 256 * KiB
"""An answer that may be read on the event loop: 1 ms."""


class _Answer(msgspec.Struct):
    tokens: list[int]


_answer = msgspec.json.Decoder(_Answer)


class RemoteTokenizer:
    """Asks engines, keeps answers within a bound of bytes, least recently used out first."""

    def __init__(self, client: UpstreamClient, config_of: Callable[[str], EndpointConfig]) -> None:
        self._client = client
        self._config_of = config_of
        self._kept = SegmentCache(MOST_KEPT_BYTES)

    async def tokens_of(self, model: str, prompt: PromptView, endpoints: list[EndpointSnapshot]) -> TokenIds | None:
        """Token ids of a prompt, from the cache or from the first healthy endpoint that can tell."""
        question = _question(model, prompt)
        if question is None:
            return None
        key = self._kept.key_of(question)
        known = self._kept.get(key)
        if known is not None:
            return known
        for endpoint in endpoints:
            if endpoint.healthy and endpoint.facts is not None and endpoint.facts.has_tokenize:
                tokens = await self._ask(endpoint.id, question)
                if tokens is not None:
                    self._kept.put(key, tokens)
                return tokens
        return None

    async def _ask(self, endpoint_id: str, question: bytes) -> TokenIds | None:
        headers = ((b"content-type", b"application/json"),)
        request = UpstreamRequest("POST", "/tokenize", headers, question)
        deadlines = Deadlines(connect_s=DEADLINE_S, first_byte_s=DEADLINE_S, idle_s=DEADLINE_S)
        try:
            endpoint = self._config_of(endpoint_id)
            async with asyncio.timeout(DEADLINE_S), await self._client.send(endpoint, request, deadlines) as response:
                body = await response.read(_most_bytes(question))
                if response.status != 200:
                    return None
        except (BackendError, TimeoutError):
            return None
        return await asyncio.to_thread(_ids, body) if len(body) > LOOP_SAFE_ANSWER_BYTES else _ids(body)


def _most_bytes(question: bytes) -> int:
    """The longest answer to a question: no tokenizer makes more tokens than there are bytes."""
    return BYTES_PER_TOKEN * min(MOST_TOKENS, len(question) + TEMPLATE_TOKENS)


def _ids(answer: bytes) -> TokenIds | None:
    """Token ids, None where the answer holds none that are. O(answer)."""
    try:
        return pack(array("I", decode(_answer, answer).tokens))
    except (*UNREADABLE, OverflowError):
        return None


def _template_arguments(prompt: PromptView) -> dict[str, object] | None:
    """Variables of the template; the effort of reasoning among them, since vLLM's /tokenize knows it only so."""
    effort = prompt.reasoning_effort
    if effort is None:
        return dict(prompt.template_kwargs) or None
    said = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return {**said, **prompt.template_kwargs, "reasoning_effort": effort}


def _question(model: str, prompt: PromptView) -> bytes | None:
    """The body of /tokenize (vLLM's and SGLang's form), or None for prompts it does not take: it knows no documents,
    and pictures it would fetch and compute."""
    if prompt.messages is not None:
        if prompt.documents or has_media(prompt):
            return None
        content: dict[str, object] = {
            "model": model,
            "messages": prompt.messages,
            "add_generation_prompt": prompt.add_generation_prompt,
            "continue_final_message": prompt.continue_final_message,
            "add_special_tokens": prompt.add_special_tokens,
        }
        if prompt.tools is not None:
            content["tools"] = prompt.tools
        if (arguments := _template_arguments(prompt)) is not None:
            content["chat_template_kwargs"] = arguments
        if prompt.reasoning_effort is not None:
            content["reasoning_effort"] = prompt.reasoning_effort
    elif isinstance(prompt.prompt, str):
        content = {"model": model, "prompt": prompt.prompt, "add_special_tokens": prompt.add_special_tokens}
    else:
        return None
    return msgspec.json.encode(content)
