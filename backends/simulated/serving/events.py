"""Bodies of answers: whole ones, chunks of streams, usage, lies about usage."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.face import Moment
from backends.simulated.serving.faults import WrongUsage
from backends.simulated.serving.generating import Said
from backends.simulated.serving.site import Site
from backends.simulated.serving.split.leg import More
from backends.simulated.serving.types import Json, Tally, Wanted

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Choice:
    """A whole answer's choice."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    ends: str | None = None
    more: More = field(default_factory=More)


class Bodies:
    """The bodies of one answer, which all repeat its id, its time and its model."""

    def __init__(self, site: Site, wanted: Wanted, created: int) -> None:
        self._site = site
        self._wanted = wanted
        self._shape = site.face.shape
        self._tallies: dict[int, Tally] = {}
        prefix = "chatcmpl" if wanted.chat else "cmpl"
        self._common: Json = {
            "id": wanted.request_id if site.face.bare_ids else f"{prefix}-{wanted.request_id}",
            "created": created,
            "model": wanted.model,
        }

    def first(self) -> list[bytes]:
        """Chunks before all tokens."""
        role = self._shape.role
        if role is None or not self._wanted.chat:
            return []
        choices = range(len(self._wanted.prompts) * self._wanted.n)
        top = dict(self._shape.first_top)
        if self._wanted.return_token_ids:
            top["prompt_token_ids"] = list(self._wanted.prompts[0].ids)
        return [self._chunk([{"index": one, "delta": dict(role), "finish_reason": None}], None, top) for one in choices]

    def token(self, said: Said) -> list[bytes]:
        """The chunks of a token: one, or two where the end comes alone."""
        self._tallies[said.choice] = said.tally
        alone = self._shape.ends_alone and said.ends is not None
        chunks = [self._chunk([self._choice(said, said.text, None if alone else said.ends)], said)]
        if alone:
            end = self._choice(said, None, said.ends)
            more = {} if self._wanted.include_usage else self._site.face.beside(self._site, self._counted())
            chunks.append(self._chunk([end], said, more))
        if said.ends is not None and not self._wanted.include_usage and self._shape.usage_top:
            chunks[-1] = self._chunk([self._choice(said, said.text, said.ends)], said, dict(self._shape.usage_top))
        return chunks

    def last(self) -> list[bytes]:
        """Chunks behind all tokens."""
        chunks = []
        if self._wanted.include_usage and self._site.faults.wrong_usage is not WrongUsage.MISSING:
            beside = self._site.face.beside(self._site, self._counted())
            more = {**beside, **self._usage(Moment.LAST), **self._shape.usage_top}
            chunks.append(self._chunk([], None, more, is_last=True))
        if self._shape.done:
            chunks.append(DONE)
        return chunks

    def failure(self, refused: Refused) -> list[bytes]:
        """What a stream ends with when the engine fails in the middle of it."""
        return [_event(self._site.face.error(refused)), DONE]

    def whole(self, choices: Sequence[Choice], tallies: Sequence[Tally]) -> Json:
        """The answer in one piece."""
        self._tallies = dict(enumerate(tallies))
        shape, is_chat = self._shape, self._wanted.chat
        listed: list[Json] = []
        for index, one in enumerate(choices):
            text = "".join(one.text)
            more = shape.whole_choice if is_chat else shape.text_choice
            said: Json = {"index": index, "finish_reason": one.ends, **shape.choice, **more}
            if is_chat:
                said["message"] = {"role": "assistant", "content": text, **shape.message}
            else:
                said["text"] = text
            if self._wanted.return_token_ids:
                said["token_ids"] = one.token_ids
                if not is_chat:
                    said["prompt_token_ids"] = list(self._wanted.prompts[index // self._wanted.n].ids)
            listed.append({**said, **one.more.choice})
        body: Json = {
            **self._common,
            "object": "chat.completion" if self._wanted.chat else "text_completion",
            "choices": listed,
            **(shape.whole if is_chat else shape.text_whole),
            **self._usage(Moment.WHOLE),
            **self._site.face.beside(self._site, self._counted()),
            **{name: value for one in choices for name, value in one.more.top.items()},
        }
        if self._wanted.return_token_ids and is_chat:
            body["prompt_token_ids"] = list(self._wanted.prompts[0].ids)
        return body

    def _choice(self, said: Said, text: str | None, ends: str | None) -> Json:
        choice: Json = {"index": said.choice, "finish_reason": ends, **self._shape.choice}
        if self._wanted.chat:
            choice["delta"] = dict(self._shape.end_delta) if text is None else {**self._shape.delta, "content": text}
        else:
            choice |= {**self._shape.text_chunk, "text": text or ""}
        if text is not None:
            choice |= self._shape.token
        if ends is not None:
            choice |= self._shape.end
        if self._wanted.return_token_ids:
            choice["token_ids"] = [] if text is None else list(said.token_ids)
        return choice

    def _chunk(
        self, choices: list[Json], said: Said | None = None, more: Json | None = None, *, is_last: bool = False
    ) -> bytes:
        body: Json = {
            **self._common,
            "object": "chat.completion.chunk" if self._wanted.chat else "text_completion",
            "choices": choices,
            **self._shape.top,
        }
        if self._wanted.include_usage and not is_last:
            if self._wanted.continuous_usage:
                running = [said.tally] if said is not None else []
                body["usage"] = self._site.face.usage(self._site, running, Moment.RUNNING)
            elif self._shape.usage_null:
                body["usage"] = None
        pad = self._shape.pad if said is None and not is_last else ""
        return _event({**body, **(more or {})}, pad)

    def _counted(self) -> list[Tally]:
        """One for each choice, of which the first of each prompt counts the prompt."""
        n = self._wanted.n
        return [
            one if index % n == 0 else replace(one, prompt_tokens=0, cached_tokens=0, created_tokens=0)
            for index, one in sorted(self._tallies.items())
        ]

    def _usage(self, moment: Moment) -> Json:
        lie = self._site.faults.wrong_usage
        if lie is WrongUsage.MISSING:
            return {}
        tallies = [_bent(one, lie) for one in self._counted()]
        if not self._wanted.chat:
            tallies = [replace(one, created_tokens=None) for one in tallies]
        return {"usage": self._site.face.usage(self._site, tallies, moment)}


def _bent(tally: Tally, lie: WrongUsage) -> Tally:
    match lie:
        case WrongUsage.ALL_CACHED:
            return replace(tally, cached_tokens=max(0, tally.prompt_tokens - 1))
        case WrongUsage.NONE_CACHED:
            return replace(tally, cached_tokens=0)
        case WrongUsage.DOUBLE_PROMPT:
            return replace(tally, prompt_tokens=2 * tally.prompt_tokens)
        case WrongUsage.DOUBLE_OUTPUT:
            return replace(tally, output_tokens=2 * tally.output_tokens)
        case _:
            return tally


def _event(body: Json, pad: str = "") -> bytes:
    return b"data: " + msgspec.json.encode(body) + pad.encode() + b"\n\n"
