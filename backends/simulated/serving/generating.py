"""Answers in the making: from what is wanted to tokens, one after the other, for all choices of a request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.runner import Answering, Note
from backends.simulated.serving.site import Site
from backends.simulated.serving.split import WHOLE, Leg
from backends.simulated.serving.split.leg import More
from backends.simulated.serving.text import Continued, answer_of
from backends.simulated.serving.types import Prompt, Tally, Wanted
from backends.simulated.types import Job


@dataclass(frozen=True, slots=True)
class Said:
    """A token of a choice. `ends`: why the choice ends with it, None where it does not."""

    choice: int
    text: str
    token_ids: tuple[int, ...]
    tally: Tally
    ends: str | None
    more: More = field(default_factory=More)


@asynccontextmanager
async def tokens(site: Site, wanted: Wanted) -> AsyncIterator[AsyncIterator[Said]]:
    """The tokens of all choices as they come; what runs is aborted when the block is left. Raises `Refused`."""
    face, limit = site.face, site.spec.max_queued
    if face.overload is not None and limit is not None and site.runner.waiting() >= limit:
        raise face.overload
    queue: asyncio.Queue[Said | Exception] = asyncio.Queue()
    choices = [prompt for prompt in wanted.prompts for _ in range(wanted.n)]
    async with asyncio.TaskGroup() as group:
        works = [
            group.create_task(_follow(site, wanted, prompt, choice, queue)) for choice, prompt in enumerate(choices)
        ]
        try:
            yield _merged(queue, len(choices))
        finally:
            for work in works:
                work.cancel()


async def _merged(queue: asyncio.Queue[Said | Exception], choices: int) -> AsyncIterator[Said]:
    while choices:
        said = await queue.get()
        if isinstance(said, Exception):
            raise said
        if said.ends is not None:
            choices -= 1
        yield said


async def _follow(
    site: Site, wanted: Wanted, prompt: Prompt, choice: int, queue: asyncio.Queue[Said | Exception]
) -> None:
    runner = site.runner
    rank = runner.lightest() if wanted.rank is None else wanted.rank
    answer = answer_of(prompt, site.vocabulary)
    leg = WHOLE if site.face.leg is None else site.face.leg(site, wanted, prompt)
    length, ends = (1, "length") if leg.one_token else _length(site, wanted, prompt, answer)
    await leg.begin(rank)
    async with _adapter(site, wanted.adapter):
        slot_asked = wanted.fields.get("id_slot")
        pinned = slot_asked if isinstance(slot_asked, int) and slot_asked >= 0 else None
        stored = _stored(site, answer, length)
        slot, names = await runner.named(prompt.ids, stored, f"{wanted.adapter}\0{wanted.salt}{leg.namespace}", pinned)
        written = 0
        try:
            number = runner.new_number()
            job = Job(number, names, len(prompt.ids), length, hold=leg.hold, transferred=leg.transferred)
            with runner.generating(job, rank, Note(wanted.request_id, wanted.adapter, leg.part, ends)) as one:
                try:
                    await _say(site, one, answer, _Course(choice, ends, leg), queue)
                finally:
                    written = one.written
        finally:
            await runner.slot_done(slot, stored[: max(0, written - 1)])


@dataclass(frozen=True, slots=True)
class _Course:
    """What is settled of a choice before its first token."""

    choice: int
    ends: str
    leg: Leg


async def _say(
    site: Site, one: Answering, answer: Continued, course: _Course, queue: asyncio.Queue[Said | Exception]
) -> None:
    ends, leg = course.ends, course.leg
    length, sent = one.job.output_tokens, 0
    while sent < length:
        written = await one.more(sent)
        if one.lost:
            queue.put_nowait(_lost(site, one))
            return
        for number in range(sent, written):
            text = answer.piece(number) if answer.natural_tokens > 0 or ends == "length" else ""
            ids = tuple(site.vocabulary.encode(text))
            is_last = number + 1 == length
            more = await leg.end(one.job.number, one) if is_last else More()
            tally = _told(replace(one.tally, output_tokens=number + 1), leg)
            queue.put_nowait(Said(course.choice, text, ids, tally, ends if is_last else None, more))
        sent = written


def _told(tally: Tally, leg: Leg) -> Tally:
    if leg.cached_tokens is None:
        return tally
    prompt_tokens = tally.prompt_tokens if leg.prompt_tokens is None else leg.prompt_tokens
    return replace(tally, cached_tokens=leg.cached_tokens, created_tokens=0, prompt_tokens=prompt_tokens)


def _lost(site: Site, one: Answering) -> Exception:
    if one.written == 0 and site.face.too_long is not None:
        return site.face.too_long(site, one.job.prompt_tokens, one.job.output_tokens)
    return Refused(500, "the engine dropped the request", kind="InternalServerError")


def _stored(site: Site, answer: Continued, length: int) -> tuple[int, ...]:
    """The token ids of an answer but for its last one, whose keys and values are never stored; none where a token of
    it is several in the vocabulary, so that no prompt would find them anyway."""
    ids = [one for number in range(length - 1) for one in site.vocabulary.encode(answer.piece(number))]
    return tuple(ids) if len(ids) == length - 1 else ()


def _length(site: Site, wanted: Wanted, prompt: Prompt, answer: Continued) -> tuple[int, str]:
    """Tokens of an answer, and why it ends: by itself, or at a limit."""
    room = max(1, site.spec.max_model_len - len(prompt.ids))
    most = room if wanted.max_tokens is None else min(room, wanted.max_tokens)
    if wanted.ignore_eos:
        return most, "length"
    natural = max(1, wanted.min_tokens, answer.natural_tokens)
    return (natural, "stop") if natural <= most else (most, "length")


@asynccontextmanager
async def _adapter(site: Site, name: str | None) -> AsyncIterator[None]:
    if name is None:
        yield
        return
    await site.adapters.use(name)
    try:
        yield
    finally:
        await site.adapters.done(name)
