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
from typing import Any, Final

import httpx

from gateway.tuning.errors import SettingFailed
from gateway.tuning.judging import is_exact, is_said
from gateway.tuning.questions import Question
from gateway.tuning.types import Answer, Quality, Reading, Tasks, Token

_PATIENCE: Final = httpx.Timeout(600.0, connect=10.0)
"""As `prefixgate measure` has with a first token."""
_FORCED: Final = 1e6
"""More than any logit, and finite: minus it there is still something."""
_SAID_CHARS: Final = 200


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
        status, page = await self._post("/v1/chat/completions", body)
        choice = _first_choice(page)
        if status != httpx.codes.OK or choice is None:
            raise SettingFailed(f"a question was answered with status {status}: {str(page)[:_SAID_CHARS]}")
        text = str((choice.get("message") or {}).get("content") or "")
        told = choice.get("token_ids")
        ids: list[Token] | None = told if isinstance(told, list) else await self._tokens(text) if text else []
        if ids is None:
            self.unit, ids = "words", [*text.split()]
        return text, ids

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
        status, page = await self._post("/v1/completions", body)
        choice, usage = _first_choice(page), _usage(page)
        told = ((choice or {}).get("logprobs") or {}).get("token_logprobs")
        prompt = usage.get("prompt_tokens")
        if status != httpx.codes.OK or not isinstance(told, list) or not isinstance(prompt, int) or len(told) < prompt:
            return None
        return _numbers(told[1:prompt])

    async def _of_prompt(self, text: str) -> list[float] | None:
        body = {"model": self._model, "prompt": text, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}
        status, page = await self._post("/v1/completions", body)
        told = (_first_choice(page) or {}).get("prompt_logprobs")
        if status != httpx.codes.OK or not isinstance(told, list):
            return None
        only = [list(one.values()) if isinstance(one, dict) else [] for one in told[1:]]
        return _numbers([one[0].get("logprob") if len(one) == 1 else None for one in only])

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
            status, page = await self._post("/completion", body)
            [told, *_] = page.get("completion_probabilities") or [{}]
            if status != httpx.codes.OK or told.get("id") != tokens[count]:
                return None
            found.append(told.get("logprob"))
        return _numbers(found)

    async def _tokens(self, text: str) -> list[Token] | None:
        """By the route that both vLLM and llama.cpp have, each with a name of its own for the text."""
        status, page = await self._post("/tokenize", {"model": self._model, "prompt": text, "content": text})
        tokens = page.get("tokens")
        known = status == httpx.codes.OK and isinstance(tokens, list) and all(isinstance(one, int) for one in tokens)
        return tokens if known else None

    async def _post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the object that is answered, an empty one where it is none. Raises `SettingFailed`."""
        try:
            answer = await self._twice(path, body)
        except httpx.HTTPError as error:
            raise SettingFailed(f"{path} was not answered: {str(error) or type(error).__name__}") from None
        try:
            page = answer.json()
        except ValueError:
            return answer.status_code, {}
        return answer.status_code, page if isinstance(page, dict) else {}

    async def _twice(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Once more where a connection that was kept had been closed by the other side."""
        try:
            return await self._client.post(path, json=body)
        except (httpx.RemoteProtocolError, httpx.ReadError):
            return await self._client.post(path, json=body)


def _first_choice(page: dict[str, Any]) -> dict[str, Any] | None:
    choices = page.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def _usage(page: dict[str, Any]) -> dict[str, Any]:
    usage = page.get("usage")
    return usage if isinstance(usage, dict) else {}


def _numbers(told: Sequence[object]) -> list[float] | None:
    """None where one is missing: a perplexity of the others would be another one."""
    known = [round(float(one), 6) for one in told if isinstance(one, int | float)]
    return known if len(known) == len(told) else None
