"""Questions to an address, one at a time, whose answers tell how good it is.

    text ──> echo with logprobs        SGLang, vLLM: one request
         └─> prompt_logprobs           vLLM
         └─> token by token            llama.cpp: each next token is forced by a bias, and its own probability told,
                                       which is that before the bias; the cache makes it one step of decoding each
         └─> nobody tells              None, and why

Greedy answers are asked alone, so that no batch changes their arithmetic; several twice, which tells chance apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpx
import msgspec

from gateway import surrogates
from gateway.tuning.errors import SettingFailed
from gateway.tuning.judging import is_exact, is_said
from gateway.tuning.pages import ChatPage, EchoPage, ForcedPage, PromptPage, TokenPage, legible
from gateway.tuning.questions import Question
from gateway.tuning.types import Answer, MiB, Quality, Reading, Tasks, Token

_PATIENCE: Final = httpx.Timeout(600.0, connect=10.0)
"""As `prefixgate measure` has with a first token."""
_FORCED: Final = 1e6
"""More than any logit, and finite: minus it there is still something."""
_SAID_BYTES: Final = 4096
_SAID_CHARS: Final = 200
_MOST_BYTES: Final = 64 * MiB
"""Of an answer: probabilities of a long text take some."""
_ROUNDED: Final = 1e-3
"""A logarithm of a probability that is more than 0 by this much may have been rounded in 16 bits."""

P = TypeVar("P", EchoPage, PromptPage, ForcedPage, TokenPage, ChatPage)


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom to ask: the base of its routes, its model, and its key."""

    url: str
    model: str
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """What is asked of every setting."""

    text: str
    questions: Sequence[Question]
    again: int
    """So many open questions are asked twice."""


async def examine(asked: Asked, what: Examination) -> Quality:
    """All of it. Raises `SettingFailed` where a question is not answered."""
    headers = {} if asked.api_key is None else {"authorization": f"Bearer {asked.api_key}"}
    async with httpx.AsyncClient(base_url=asked.url, timeout=_PATIENCE, headers=headers, trust_env=False) as client:
        ask = _Ask(client, asked.model)
        reading, unread = await ask.reads(what.text)
        answers: list[Answer] = []
        exact, said, again = 0, 0, what.again
        for question in what.questions:
            text, tokens = await ask.answers(question)
            exact += is_exact(text, question.answers)
            said += is_said(text, question.answers)
            twice = None
            if not question.answers and again:
                again -= 1
                _, twice = await ask.answers(question)
            answers.append(Answer(tokens, twice))
    if not answers and reading is None:
        raise SettingFailed(f"nothing tells its quality: there is no question, and {unread}")
    of = sum(bool(one.answers) for one in what.questions)
    return Quality(answers, ask.unit, Tasks(exact, said, of) if of else None, reading, unread)


class _Ask:
    """One client. `unit`: what tokens of answers are."""

    def __init__(self, client: httpx.AsyncClient, model: str) -> None:
        self.unit = "tokens"
        self._client, self._model = client, model

    async def answers(self, question: Question) -> tuple[str, list[Token]]:
        """The greedy answer, and its tokens."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": question.prompt}],
            "max_tokens": question.most_tokens,
            "temperature": 0,
            "return_token_ids": True,
        }
        status, said = await self._post("/v1/chat/completions", body)
        page = _page(said, ChatPage)
        if status != httpx.codes.OK or page is None or not page.choices:
            told = legible(said[:_SAID_BYTES].decode(errors="replace"))[:_SAID_CHARS]
            raise SettingFailed(f"a question was answered with status {status}: {told}")
        choice = page.choices[0]
        text, ids = choice.message.text, choice.token_ids
        if ids is None:
            ids = await self._tokens(text) if text else []
        if ids is None:
            self.unit = "words"
            return text, [*text.split()]
        return text, [*ids]

    async def reads(self, text: str) -> tuple[Reading | None, str | None]:
        """The held text, in the first way in which the address can; else None, and why not."""
        if not text:
            return None, "no text"
        for method, way in (
            ("echo", self._echoed),
            ("prompt_logprobs", self._of_prompt),
            ("token by token", self._forced),
        ):
            found = await way(text)
            if found:
                return Reading(found, len(text.encode()), method), None
        return None, "the address tells no probabilities of the tokens of a prompt"

    async def _echoed(self, text: str) -> list[float] | None:
        body = {"model": self._model, "prompt": text, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
        page = await self._asked("/v1/completions", body, EchoPage)
        echo = page.choices[0].logprobs if page is not None and page.choices else None
        prompt = None if page is None or page.usage is None else page.usage.prompt_tokens
        if echo is None or echo.token_logprobs is None or prompt is None or len(echo.token_logprobs) < prompt:
            return None
        return _numbers(echo.token_logprobs[1:prompt])

    async def _of_prompt(self, text: str) -> list[float] | None:
        body = {"model": self._model, "prompt": text, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}
        page = await self._asked("/v1/completions", body, PromptPage)
        told = page.choices[0].prompt_logprobs if page is not None and page.choices else None
        if told is None:
            return None
        only = [[*one.values()] if one is not None else [] for one in told[1:]]
        return _numbers([one[0].logprob if len(one) == 1 else None for one in only])

    async def _forced(self, text: str) -> list[float] | None:
        """By llama.cpp's own route: a bias makes the token the one that is drawn, its probability is told without."""
        tokens = await self._tokens(text)
        if tokens is None or len(tokens) < 2:
            return None
        found: list[float] = []
        for count in range(1, len(tokens)):
            body = {
                "prompt": tokens[:count],
                "n_predict": 1,
                "n_probs": 1,
                "logit_bias": [[tokens[count], _FORCED]],
                "temperature": 0,
                "cache_prompt": True,
            }
            page = await self._asked("/completion", body, ForcedPage)
            told = page.completion_probabilities[0] if page is not None and page.completion_probabilities else None
            if told is None or told.id != tokens[count] or told.logprob is None:
                return None
            found.append(told.logprob)
        return _numbers(found)

    async def _tokens(self, text: str) -> list[int] | None:
        """By the route that both vLLM and llama.cpp have, each with a name of its own for the text."""
        page = await self._asked("/tokenize", {"model": self._model, "prompt": text, "content": text}, TokenPage)
        return None if page is None else page.tokens

    async def _asked(self, path: str, body: dict[str, Any], kind: type[P]) -> P | None:
        """The page, None where it is none of that kind, or not served. Raises `SettingFailed`."""
        status, said = await self._post(path, body)
        return _page(said, kind) if status == httpx.codes.OK else None

    async def _post(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        """The status and what is said. Raises `SettingFailed` where there is no answer, or one without an end."""
        try:
            return await self._twice(path, body)
        except httpx.HTTPError as error:
            raise SettingFailed(f"{path} was not answered: {str(error) or type(error).__name__}") from None

    async def _twice(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        """Once more where a connection that was kept had been closed by the other side."""
        try:
            return await self._once(path, body)
        except (httpx.RemoteProtocolError, httpx.ReadError):
            return await self._once(path, body)

    async def _once(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        async with self._client.stream("POST", path, json=body) as answer:
            said = bytearray()
            async for part in answer.aiter_bytes():
                said += part
                if len(said) > _MOST_BYTES:
                    raise SettingFailed(f"{path} was answered with more than {_MOST_BYTES // MiB} MiB")
            return answer.status_code, bytes(said)


def _page(said: bytes, kind: type[P]) -> P | None:
    try:
        return surrogates.decode(msgspec.json.Decoder(kind), said)  # a token may be half a character
    except surrogates.UNREADABLE:
        return None


def _numbers(told: Sequence[float | None]) -> list[float] | None:
    """None where one is missing, since a perplexity of the others would be another one, or is no probability."""
    known = [round(one, 6) for one in told if one is not None and one <= _ROUNDED]
    return known if len(known) == len(told) else None
