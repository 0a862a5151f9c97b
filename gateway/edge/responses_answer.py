"""A chat answer as a response object, whole; and the pieces of which a stream makes the same object.

    chat completion                       response
    message.reasoning(_content)           output: reasoning     {content: [reasoning_text]}
    message.content, refusal                      message       {content: [output_text | refusal]}
    message.tool_calls                            function_call, custom_tool_call
    finish_reason  stop, tool_calls       status: completed
                   length, content_filter         incomplete, and why
                   abort, error                   failed
    usage                                 usage, unknown details null
    the request                           instructions, tools, temperature, ... said back

Ids come from the chat's own (`chatcmpl-x` gives `resp_x`, `msg_x_0`), so an answer is found in the engine's log. What
the server did not say is null: a temperature it chose, how much of the prompt was cached.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from billing import UsageMerger
from gateway.edge.call_fragments import CallIds
from gateway.edge.chat_answer import CallPiece, ChatAnswer, Said, read_completion
from gateway.edge.engine_errors import EngineError, error_in_body
from gateway.edge.responses_tools import ToolNames, custom_text

Json = dict[str, object]

_SAID_BACK: Mapping[str, object] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": None,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""Fields of the request that are part of a response, and what they are where the request says nothing."""

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_FAILURES = frozenset({"abort", "error"})
_ERROR_CODES = frozenset({"invalid_prompt", "rate_limit_exceeded", "server_error"})


@dataclass(frozen=True, slots=True)
class Ending:
    """How an answer ended; `reason` says why it is incomplete, `error` why it failed."""

    status: str
    reason: str | None = None
    error: Json | None = None

    @property
    def last_item(self) -> str:
        """The status of the item that was being written at the end."""
        return "completed" if self.status == "completed" else "incomplete"


RUNNING = Ending("in_progress")


class Echo:
    """What of a request comes back in every response to it, and who names an answer that has no name or time."""

    def __init__(self, body: Mapping[str, object], clock: Callable[[], float], new_name: Callable[[], str]) -> None:
        self.names = ToolNames(body.get("tools"))
        self.said_back = {name: _or_default(body.get(name), unsaid) for name, unsaid in _SAID_BACK.items()}
        self._model = body.get("model")
        self._clock = clock
        self._new_name = new_name

    def head(self, chat: ChatAnswer) -> "Head":
        """Id, time and model of the response, from a chat completion or a chunk of one."""
        created = int(self._clock()) if chat.created is None else chat.created
        return Head(chat.name or self._new_name(), created, chat.model or self._model)


@dataclass(frozen=True, slots=True)
class Head:
    """What names a response; `created_at` in Unix seconds."""

    suffix: str
    created_at: int
    model: object

    def item_id(self, prefix: str, output_index: int) -> str:
        """The id of the item at this place of the output."""
        return f"{prefix}_{self.suffix}_{output_index}"


def response_object(echo: Echo, head: Head, ending: Ending, output: list[Json], usage: Json | None) -> Json:
    """The response as the API writes it. It shares `output` with the caller."""
    return {
        "id": f"resp_{head.suffix}",
        "object": "response",
        "created_at": head.created_at,
        "status": ending.status,
        "background": False,
        "error": ending.error,
        "incomplete_details": None if ending.reason is None else {"reason": ending.reason},
        "model": head.model,
        "output": output,
        "store": False,
        "usage": usage,
        **echo.said_back,
    }


def whole_response(echo: Echo, answer: bytes) -> bytes:
    """A plain chat completion as a response. Raises `UpstreamFailed` where it is none. Linear."""
    chat, choice = read_completion(answer)
    head = echo.head(chat)
    ending = ending_of(choice.finish_reason or "stop")
    output = _output(echo.names, head, choice.said, choice.logprobs, ending)
    usage = UsageMerger()
    if chat.usage is not None:
        usage.add(chat.usage)
    return msgspec.json.encode(response_object(echo, head, ending, output, response_usage(usage)))


def refusal_body(status: int, answer: bytes) -> bytes:
    """An error answer in the form of the OpenAI API, with the server's own words however it wrapped them."""
    error = error_in_body(answer)
    message = error.message or f"the model server answered {status} without saying why"
    kind = error.type or ("invalid_request_error" if status < 500 else "server_error")
    fields = {"message": message, "type": kind, "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": fields})


def failure(error: EngineError) -> Ending:
    """The ending of an answer in whose midst the server reported an error."""
    code = error.code if error.code in _ERROR_CODES else "server_error"
    message = error.message or "the model server failed without saying why"
    return Ending("failed", error={"code": code, "message": message})


def ending_of(finish_reason: str) -> Ending:
    """What a chat's finish reason means for the response; one that nobody knows means a normal end."""
    if finish_reason in _INCOMPLETE:
        return Ending("incomplete", _INCOMPLETE[finish_reason])
    if finish_reason in _FAILURES:
        return failure(EngineError(f"the model server ended the answer: {finish_reason}"))
    return Ending("completed")


def response_usage(merger: UsageMerger) -> Json | None:
    """Usage in this dialect; None where the server reported none. Details that it did not report are null."""
    usage = merger.result().usage
    if usage is None:
        return None
    known = usage.prompt_tokens is not None and usage.output_tokens is not None
    written = {} if usage.cache_write_tokens is None else {"cache_write_tokens": usage.cache_write_tokens}
    cached = None if usage.cached_tokens is None else {"cached_tokens": usage.cached_tokens, **written}
    reasoning = None if usage.reasoning_tokens is None else {"reasoning_tokens": usage.reasoning_tokens}
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": cached,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": reasoning,
        "total_tokens": (usage.prompt_tokens or 0) + (usage.output_tokens or 0) if known else None,
    }


def reasoning_item(item_id: str, text: str, status: str) -> Json:
    """A reasoning item; its content is one part."""
    content = [] if status == "in_progress" else [{"type": "reasoning_text", "text": text}]
    return {"id": item_id, "type": "reasoning", "summary": [], "content": content, "status": status}


def message_item(item_id: str, part: Json | None, status: str) -> Json:
    """A message of the assistant's; `part` is None while it is empty."""
    content = [] if part is None else [part]
    return {"id": item_id, "type": "message", "role": "assistant", "content": content, "status": status}


def output_text(text: str, logprobs: Iterable[object]) -> Json:
    """A part of text."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def call_item(names: ToolNames, head: Head, output_index: int, call: "Call", status: str) -> Json:
    """A call of a function or a custom tool, under the names that the client gave them."""
    if names.is_custom(call.name):
        return {
            "id": head.item_id("ctc", output_index),
            "type": "custom_tool_call",
            "call_id": call.call_id,
            "name": call.name,
            "input": custom_text(call.arguments) if call.arguments else "",
        }
    namespace, name = names.split(call.name)
    item: Json = {
        "id": head.item_id("fc", output_index),
        "type": "function_call",
        "call_id": call.call_id,
        "name": name,
        "arguments": call.arguments,
        "status": status,
    }
    return item if namespace is None else {**item, "namespace": namespace}


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the chat says it."""

    name: str
    call_id: str
    arguments: str


def own_call_id(head: Head, given: str, output_index: int) -> str:
    """An id for a call to which the server gave none, or that of another call."""
    return head.item_id(given or "call", output_index)


def _output(names: ToolNames, head: Head, said: Said, logprobs: list[object], ending: Ending) -> list[Json]:
    makers: list[Callable[[int, str], Json]] = []
    if said.reasoning:
        makers.append(lambda at, status: reasoning_item(head.item_id("rs", at), said.reasoning, status))
    if said.text:
        text = output_text(said.text, logprobs)
        makers.append(lambda at, status: message_item(head.item_id("msg", at), text, status))
    if said.refusal:
        part: Json = {"type": "refusal", "refusal": said.refusal}
        makers.append(lambda at, status: message_item(head.item_id("msg", at), part, status))
    ids = CallIds()
    makers.extend(_call_maker(names, head, ids, call) for call in said.calls)
    last = len(makers) - 1
    return [make(at, ending.last_item if at == last else "completed") for at, make in enumerate(makers)]


def _call_maker(names: ToolNames, head: Head, ids: CallIds, call: CallPiece) -> Callable[[int, str], Json]:
    def made(at: int, status: str) -> Json:
        call_id = ids.take(call.id, own_call_id(head, call.id, at))
        return call_item(names, head, at, Call(call.name, call_id, call.arguments), status)

    return made


def _or_default(value: object, unsaid: object) -> object:
    return unsaid if value is None else value
