"""Token ids from the engine itself, for models whose tokenizer is not here: `POST /tokenize` of any of its endpoints.

Answers are kept by the digest of the question, so the same prompt is asked once while its answer is kept; a question
that fails or takes longer than `DEADLINE_S` gives None, and the caller goes on without.
"""

import asyncio
from array import array
from collections.abc import Callable
from typing import Final

import msgspec

from backends import BackendError, Deadlines, EndpointConfig, EndpointSnapshot, UpstreamClient, UpstreamRequest
from prefix_index import SegmentCache, TokenIds, pack
from prefix_index.prompt import PromptView
from prefix_index.prompt.media import media_chars

DEADLINE_S: Final = 1.0
MiB: Final = 1024 * 1024
MOST_KEPT_BYTES: Final = 64 * MiB


class _Answer(msgspec.Struct):
    tokens: list[int]


_decode = msgspec.json.Decoder(_Answer)


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
                tokens = await self._ask(self._config_of(endpoint.id), question)
                if tokens is not None:
                    self._kept.put(key, tokens)
                return tokens
        return None

    async def _ask(self, endpoint: EndpointConfig, question: bytes) -> TokenIds | None:
        headers = ((b"content-type", b"application/json"),)
        request = UpstreamRequest("POST", "/tokenize", headers, question)
        deadlines = Deadlines(connect_s=DEADLINE_S, first_byte_s=DEADLINE_S, idle_s=DEADLINE_S)
        try:
            async with asyncio.timeout(DEADLINE_S), await self._client.send(endpoint, request, deadlines) as response:
                body = b"".join([chunk async for chunk in response])
                if response.status != 200:
                    return None
        except (BackendError, TimeoutError):
            return None
        try:
            return pack(array("I", _decode.decode(body).tokens))
        except (msgspec.MsgspecError, OverflowError):
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
        if prompt.documents or media_chars(prompt):
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
