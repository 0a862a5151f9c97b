"""A stream of chat chunks as the events of a response.

    chunk                      events
    the first                  response.created, response.in_progress
    delta.reasoning(_content)  output_item.added, content_part.added, reasoning_text.delta ...
    delta.content              the reasoning is done; output_item.added, content_part.added, output_text.delta ...
    delta.tool_calls[i]        the text is done; output_item.added, function_call_arguments.delta ...
    finish_reason              whatever is open is done
    [DONE]                     the same, where no reason came: completed
    : still here               itself
    end()                      response.completed | response.incomplete | response.failed

One text is open at a time; calls stay open together, since their fragments may come in turns. A call begins when its
first argument comes, or anything that follows it, for until then its name may still grow; a custom tool's text goes
out when the call is whole, because it stands inside JSON.

The final object is made of the items as they were closed, so it is what `whole` makes of the same answer said plainly.
A stream that was cut has neither finish reason nor end mark, and ends without any final event: nothing says that it was
whole. Memory: the answer, once; each text is joined once. Linear in the stream.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from billing import UsageMerger
from gateway.edge.call_fragments import CallFragments, CallIds, StreamedCall
from gateway.edge.chat_answer import CallPiece, ChatAnswer, Choice, Comment, Done, chat_events
from gateway.edge.responses_answer import (
    RUNNING,
    Call,
    Echo,
    Ending,
    Head,
    Json,
    call_item,
    ending_of,
    failure,
    message_item,
    output_text,
    own_call_id,
    reasoning_item,
    refusal_body,
    response_object,
    response_usage,
    whole_response,
)
from gateway.edge.responses_tools import ToolNames, custom_text
from gateway.sse import named_event

_FINAL: Final = {"completed": "response.completed", "incomplete": "response.incomplete", "failed": "response.failed"}


class ResponsesAnswer:
    """One answer on its way back (`AnswerTranslator`): plain, as a stream, or as a refusal."""

    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self._usage = UsageMerger()
        self._out = _Events()
        self._head: Head | None = None
        self._items: _Items | None = None
        self._ending: Ending | None = None
        self._failed = False
        self._ended = False

    def whole(self, answer: bytes) -> bytes:
        """A plain chat completion as a response. Raises `UpstreamFailed` where it is none."""
        return whole_response(self._echo, answer)

    def refusal(self, status: int, answer: bytes) -> bytes:
        """An error answer with the server's own words."""
        return refusal_body(status, answer)

    def feed(self, events: bytes) -> bytes:
        """Whole events of a chat stream as events of the response, never its last. Comments pass as they are."""
        for said in chat_events(events):
            match said:
                case Comment():
                    self._out.pass_through(said.event)
                case Done():
                    self._ending = self._ending or ending_of("stop")
                case ChatAnswer():
                    self._take(said)
        return self._out.taken()

    def end(self, events: bytes) -> bytes:
        """The last events, and the final one where the answer has ended or failed."""
        before = self.feed(events)
        if self._ending is None or self._ended:
            return before
        self._ended = True
        head, items = self._started(ChatAnswer())
        items.close(self._ending)
        final = response_object(self._echo, head, self._ending, items.done(), response_usage(self._usage))
        self._out.say(_FINAL[self._ending.status], response=final)
        return before + self._out.taken()

    def _take(self, chunk: ChatAnswer) -> None:
        if chunk.usage is not None:
            self._usage.add(chunk.usage)
        if chunk.error is not None and not self._failed:
            self._failed = True
            self._ending = failure(chunk.error)
        if not self._failed and chunk.choice is not None:
            _, items = self._started(chunk)
            self._take_choice(items, chunk.choice)

    def _take_choice(self, items: "_Items", choice: Choice) -> None:
        said = choice.said
        items.text("reasoning", said.reasoning, [])
        items.text("output_text", said.text, choice.logprobs)
        items.text("refusal", said.refusal, [])
        for position, piece in enumerate(said.calls):
            items.call(piece, position)
        if choice.finish_reason is not None and self._ending is None:
            self._ending = ending_of(choice.finish_reason)
            items.close(self._ending)

    def _started(self, chunk: ChatAnswer) -> tuple[Head, "_Items"]:
        if self._head is None or self._items is None:
            self._head = self._echo.head(chunk)
            self._items = _Items(self._out, self._echo.names, self._head)
            begun = response_object(self._echo, self._head, RUNNING, [], None)
            self._out.say("response.created", response=begun)
            self._out.say("response.in_progress", response=begun)
        return self._head, self._items


class _Events:
    """Events that wait to be taken, numbered in the order in which they were said."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._number = 0

    def say(self, kind: str, **fields: object) -> None:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        self._waiting.append(named_event(kind, msgspec.json.encode(event)))

    def pass_through(self, event: bytes) -> None:
        self._waiting.append(event)

    def taken(self) -> bytes:
        waiting, self._waiting = self._waiting, []
        return b"".join(waiting)


@dataclass(slots=True)
class _OpenText:
    kind: str
    """`reasoning`, `output_text` or `refusal`."""
    item_id: str
    at: int
    pieces: list[str] = field(default_factory=list)
    logprobs: list[object] = field(default_factory=list)

    def part(self, text: str) -> Json:
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        return output_text(text, self.logprobs)

    def item(self, text: str, status: str) -> Json:
        if self.kind == "reasoning":
            return reasoning_item(self.item_id, text, status)
        return message_item(self.item_id, None if status == "in_progress" else self.part(text), status)

    @property
    def stream_name(self) -> str:
        return "response.reasoning_text" if self.kind == "reasoning" else f"response.{self.kind}"

    def place(self) -> Json:
        return {"item_id": self.item_id, "output_index": self.at, "content_index": 0}


@dataclass(slots=True)
class _OpenCall:
    streamed: StreamedCall
    call_id: str = ""
    at: int | None = None
    """Where it stands in the output; None until it begins."""
    pieces: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.streamed.name

    def whole(self, arguments: str) -> Call:
        return Call(self.name, self.call_id, arguments)


class _Items:
    """The output items of one stream: which are open, and those that are done, by their place."""

    def __init__(self, out: _Events, names: ToolNames, head: Head) -> None:
        self._out = out
        self._names = names
        self._head = head
        self._ids = CallIds()
        self._text: _OpenText | None = None
        self._fragments = CallFragments()
        self._calls: list[_OpenCall] = []
        self._done: dict[int, Json] = {}
        self._next = 0

    def text(self, kind: str, piece: str, logprobs: list[object]) -> None:
        """Take a piece of text; an empty one says nothing."""
        if not piece:
            return
        self._open_calls(self._fragments.due())
        if self._text is not None and self._text.kind != kind:
            self._close_text("completed")
        if self._text is None:
            self._text = self._open_text(kind)
        self._text.pieces.append(piece)
        self._text.logprobs += logprobs
        fields = self._text.place() | {"delta": piece}
        if kind == "output_text":
            fields["logprobs"] = logprobs
        self._out.say(f"{self._text.stream_name}.delta", **fields)

    def call(self, piece: CallPiece, position: int) -> None:
        """Take a fragment of a call, the one at `position` in its chunk."""
        self._close_text("completed")
        streamed = self._fragments.take(piece, position)
        if streamed.number == len(self._calls):
            self._calls.append(_OpenCall(streamed))
        call = self._calls[streamed.number]
        if piece.arguments:
            call.pieces.append(piece.arguments)
        if not streamed.told:
            if streamed.ready:
                self._open_calls(self._fragments.due(streamed))
        elif piece.arguments and not self._names.is_custom(call.name):
            place = self._call_place(call)
            self._out.say("response.function_call_arguments.delta", **place, delta=piece.arguments)

    def close(self, ending: Ending) -> None:
        """The answer is over: everything open is done, and the last item as whole as the answer."""
        self._open_calls(self._fragments.rest())
        last = self._next - 1
        if self._text is not None:
            self._close_text(ending.last_item if self._text.at == last else "completed")
        for call in self._calls:
            self._close_call(call, ending.last_item if call.at == last else "completed")
        self._calls, self._fragments = [], CallFragments()

    def done(self) -> list[Json]:
        """The items that are done, in order."""
        return [self._done[at] for at in sorted(self._done)]

    def _take_place(self) -> int:
        self._next += 1
        return self._next - 1

    def _open_text(self, kind: str) -> _OpenText:
        at = self._take_place()
        text = _OpenText(kind, self._head.item_id("rs" if kind == "reasoning" else "msg", at), at)
        self._out.say("response.output_item.added", output_index=at, item=text.item("", "in_progress"))
        self._out.say("response.content_part.added", **text.place(), part=text.part(""))
        return text

    def _close_text(self, status: str) -> None:
        if self._text is None:
            return
        text, self._text = self._text, None
        whole = "".join(text.pieces)
        fields = text.place() | {"refusal" if text.kind == "refusal" else "text": whole}
        if text.kind == "output_text":
            fields["logprobs"] = text.logprobs
        self._out.say(f"{text.stream_name}.done", **fields)
        self._out.say("response.content_part.done", **text.place(), part=text.part(whole))
        self._item_done(text.at, text.item(whole, status))

    def _open_calls(self, calls: list[StreamedCall]) -> None:
        for streamed in calls:
            self._open_call(self._calls[streamed.number])

    def _open_call(self, call: _OpenCall) -> None:
        call.at = self._take_place()
        given = call.streamed.id
        call.call_id = self._ids.take(given, own_call_id(self._head, given, call.at))
        item = call_item(self._names, self._head, call.at, call.whole(""), "in_progress")
        self._out.say("response.output_item.added", output_index=call.at, item=item)
        said = "".join(call.pieces)
        if said and not self._names.is_custom(call.name):
            self._out.say("response.function_call_arguments.delta", **self._call_place(call), delta=said)

    def _close_call(self, call: _OpenCall, status: str) -> None:
        assert call.at is not None, "opened before"
        arguments = "".join(call.pieces)
        place = self._call_place(call)
        if self._names.is_custom(call.name):
            text = custom_text(arguments) if arguments else ""
            self._out.say("response.custom_tool_call_input.delta", **place, delta=text)
            self._out.say("response.custom_tool_call_input.done", **place, input=text)
        else:
            _, name = self._names.split(call.name)
            self._out.say("response.function_call_arguments.done", **place, name=name, arguments=arguments)
        self._item_done(call.at, call_item(self._names, self._head, call.at, call.whole(arguments), status))

    def _call_place(self, call: _OpenCall) -> Json:
        assert call.at is not None, "only calls that were opened are spoken of"
        prefix = "ctc" if self._names.is_custom(call.name) else "fc"
        return {"item_id": self._head.item_id(prefix, call.at), "output_index": call.at}

    def _item_done(self, at: int, item: Json) -> None:
        self._done[at] = item
        self._out.say("response.output_item.done", output_index=at, item=item)
