"""Token ids from the engine itself, for models whose tokenizer is not here, in the form of any of its endpoints.

Answers are kept by the digest of the question, so the same prompt is asked once while its answer is kept; a question
that nobody answers within `DEADLINE_S` gives None, and the caller goes on without. So does an answer of any other
form than token ids, and one too long to be an answer: what an engine says here is never the client's fault. Who did not
answer is asked after all others until it has, so that an engine that is frozen costs one prompt its ids, not each.
"""

import asyncio
from array import array
from collections.abc import Callable, Sequence
from typing import Final

from backends import (
    BackendError,
    Deadlines,
    EndpointConfig,
    EndpointSnapshot,
    UpstreamClient,
    UpstreamRequest,
)
from gateway.surrogates import UNREADABLE, decode
from gateway.tokenize_forms import DECODERS, KiB, MiB, Question, ids_or_text, of_text, question_of
from prefix_index import SegmentCache, TokenIds, pack
from prefix_index.prompt import PromptView

DEADLINE_S: Final = 1.0
MOST_KEPT_BYTES: Final = 64 * MiB
LOOP_SAFE_ANSWER_BYTES: Final = 256 * KiB
"""An answer that may be read on the event loop: 1 ms."""
_DEADLINES: Final = Deadlines(connect_s=DEADLINE_S, first_byte_s=DEADLINE_S, idle_s=DEADLINE_S)


class RemoteTokenizer:
    """Asks engines, keeps answers within a bound of bytes, least recently used out first."""

    def __init__(self, client: UpstreamClient, config_of: Callable[[str], EndpointConfig]) -> None:
        self._client = client
        self._config_of = config_of
        self._kept = SegmentCache(MOST_KEPT_BYTES)
        self._silent: set[str] = set()
        """Endpoints that did not answer when they were asked last."""

    async def tokens_of(
        self, model: str, prompt: PromptView, endpoints: list[EndpointSnapshot], space: int = 0
    ) -> TokenIds | None:
        """Token ids of a prompt, from that space of the cache or from the first healthy endpoint that can tell."""
        asking: EndpointSnapshot | None = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                for endpoint in self._in_order(endpoints):
                    if endpoint.facts is None or (question := question_of(endpoint.facts, model, prompt)) is None:
                        continue
                    key = self._kept.key_of(question.path.encode() + b"\n" + question.body, space=space)
                    known = self._kept.get(key)
                    if known is not None:
                        return known
                    if endpoint.healthy:
                        asking = endpoint
                        tokens = await self._tokens(endpoint.id, model, question)
                        if tokens is not None:
                            self._kept.put(key, tokens)
                        return tokens
        except (BackendError, TimeoutError):
            if asking is not None:
                self._silent = {one.id for one in endpoints if one.id in self._silent or one is asking}
        return None

    def _in_order(self, endpoints: list[EndpointSnapshot]) -> list[EndpointSnapshot]:
        return sorted(endpoints, key=lambda one: one.id in self._silent) if self._silent else endpoints

    async def _tokens(self, endpoint_id: str, model: str, question: Question) -> TokenIds | None:
        said = await self._ask(endpoint_id, question)
        if isinstance(said, str):
            said = await self._ask(endpoint_id, of_text(model, said))
        self._silent.discard(endpoint_id)
        try:
            return None if said is None or isinstance(said, str) else pack(array("I", said))
        except OverflowError:
            return None

    async def _ask(self, endpoint_id: str, question: Question) -> Sequence[int] | str | None:
        headers = ((b"content-type", b"application/json"),)
        request = UpstreamRequest("POST", question.path, headers, question.body)
        async with await self._client.send(self._config_of(endpoint_id), request, _DEADLINES) as response:
            body = await response.read(question.most_bytes)
            if response.status != 200:
                return None
        return (
            await asyncio.to_thread(_said, question, body)
            if len(body) > LOOP_SAFE_ANSWER_BYTES
            else _said(question, body)
        )


def _said(question: Question, answer: bytes) -> Sequence[int] | str | None:
    """What an answer says, None where it is of another form. O(answer)."""
    try:
        return ids_or_text(decode(DECODERS[question.answer], answer))
    except UNREADABLE:
        return None
