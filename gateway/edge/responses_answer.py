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

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from billing import UsageMerger
from gateway.edge.responses_tools import ToolNames, custom_text
from gateway.errors import UpstreamFailed
from gateway.surrogates import decode

Json = dict[str, object]
ANYTHING = msgspec.json.Decoder()
"""Reads any JSON; what servers send is looked at leniently."""

LONGEST_QUOTED_CHARS = 1000
"""How much of an error answer that is no JSON is quoted."""

_CHAT_ID_PREFIX = re.compile(r"^(chatcmpl|cmpl|gen|chat)-")
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

    def __init__(self, body: Mapping[str, object], clock: Callable[[], float], new_id: Callable[[], str]) -> None:
        self.names = ToolNames(body.get("tools"))
        self.said_back = {name: _or_default(body.get(name), unsaid) for name, unsaid in _SAID_BACK.items()}
        self._model = body.get("model")
        self._clock = clock
        self._new_id = new_id

    def head(self, chat: Mapping[str, object]) -> "Head":
        """Id, time and model of the response, from a chat completion or a chunk of one."""
        chat_id, created, model = chat.get("id"), chat.get("created"), chat.get("model")
        suffix = _CHAT_ID_PREFIX.sub("", chat_id) if isinstance(chat_id, str) else ""
        return Head(
            suffix or self._new_id(),
            int(created) if isinstance(created, int | float) else int(self._clock()),
            model if isinstance(model, str) and model else self._model,
        )


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
    try:
        chat = decode(ANYTHING, answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        chat = None
    choices = chat.get("choices") if isinstance(chat, dict) else None
    choice = first_choice(choices)
    message = choice.get("message") if choice is not None else None
    if not isinstance(chat, dict) or choice is None or not isinstance(message, dict):
        raise UpstreamFailed("the model server answered with something that is no chat completion")
    head = echo.head(chat)
    reason = choice.get("finish_reason")
    ending = ending_of(reason if isinstance(reason, str) else "stop")
    output = _output(echo.names, head, message, logprobs_of(choice), ending)
    usage = UsageMerger()
    if isinstance(reported := chat.get("usage"), dict):
        usage.add(reported)
    return msgspec.json.encode(response_object(echo, head, ending, output, response_usage(usage)))


def refusal_body(status: int, answer: bytes) -> bytes:
    """An error answer in the form of the OpenAI API, with the server's own words however it wrapped them."""
    try:
        decoded: object = decode(ANYTHING, answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        decoded = _readable(answer)
    error = error_fields(decoded)
    message = error.get("message") or f"the model server answered {status} without saying why"
    kind = error.get("type") or ("invalid_request_error" if status < 500 else "server_error")
    fields = {"message": message, "type": kind, "param": error.get("param"), "code": error.get("code")}
    return msgspec.json.encode({"error": fields})


def error_fields(decoded: object) -> Json:
    """Message, type, param and code of an error, whether nested, flat, a string, or FastAPI's `detail`."""
    if isinstance(decoded, str):
        return {"message": decoded}
    if isinstance(decoded, list):
        return {"message": "; ".join(text for part in decoded if isinstance(text := _complaint(part), str))}
    if not isinstance(decoded, dict):
        return {}
    for wrapper in ("error", "detail"):
        if decoded.get(wrapper) and not isinstance(decoded.get("message"), str):
            return error_fields(decoded[wrapper])
    message = decoded.get("message")
    found: Json = {"message": message if isinstance(message, str) else ""}
    return found | {name: decoded.get(name) for name in ("type", "param", "code")}


def failure(decoded: object) -> Ending:
    """The ending of an answer in whose midst the server reported an error."""
    error = error_fields(decoded)
    code = error.get("code")
    message = error.get("message") or "the model server failed without saying why"
    return Ending(
        "failed",
        error={"code": code if isinstance(code, str) and code in _ERROR_CODES else "server_error", "message": message},
    )


def ending_of(finish_reason: str) -> Ending:
    """What a chat's finish reason means for the response; one that nobody knows means a normal end."""
    if finish_reason in _INCOMPLETE:
        return Ending("incomplete", _INCOMPLETE[finish_reason])
    if finish_reason in _FAILURES:
        return failure(f"the model server ended the answer: {finish_reason}")
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


def first_choice(choices: object) -> Json | None:
    """The choice with index 0, or without one; this dialect has room for one answer only."""
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            return choice
    return None


def text_of(content: object) -> str:
    """The text of an answer's content, which a few servers write as parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def reasoning_of(message: Mapping[str, object]) -> str:
    """The reasoning of a message or a delta, under either of its names."""
    return text_of(message.get("reasoning")) or text_of(message.get("reasoning_content"))


def logprobs_of(choice: Mapping[str, object]) -> list[object]:
    """The log probabilities of a choice's tokens; both dialects write them alike."""
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return content if isinstance(content, list) else []


def arguments_text(arguments: object) -> str:
    """Arguments as JSON text, also where a server sends the object itself."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


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


class CallIds:
    """Ids of calls, made unique within an answer: clients tell calls apart by nothing else."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._used: set[str] = set()

    def take(self, given: object, output_index: int) -> str:
        """The given id, or one of our own where there is none or another call has it."""
        call_id = given if isinstance(given, str) else ""
        if not call_id or call_id in self._used:
            call_id = self._head.item_id(call_id or "call", output_index)
        self._used.add(call_id)
        return call_id


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


def _output(names: ToolNames, head: Head, message: Json, logprobs: list[object], ending: Ending) -> list[Json]:
    makers: list[Callable[[int, str], Json]] = []
    if reasoning := reasoning_of(message):
        makers.append(lambda at, status: reasoning_item(head.item_id("rs", at), reasoning, status))
    if text := text_of(message.get("content")):
        makers.append(lambda at, status: message_item(head.item_id("msg", at), output_text(text, logprobs), status))
    if refusal := text_of(message.get("refusal")):
        part: Json = {"type": "refusal", "refusal": refusal}
        makers.append(lambda at, status: message_item(head.item_id("msg", at), part, status))
    ids = CallIds(head)
    makers.extend(_call_maker(names, head, ids, call) for call in _calls(message))
    last = len(makers) - 1
    return [make(at, ending.last_item if at == last else "completed") for at, make in enumerate(makers)]


def _calls(message: Json) -> list[Json]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _call_maker(names: ToolNames, head: Head, ids: CallIds, call: Json) -> Callable[[int, str], Json]:
    function = call.get("function")
    said = function if isinstance(function, dict) else {}
    name, arguments = text_of(said.get("name")), arguments_text(said.get("arguments"))
    return lambda at, status: call_item(names, head, at, Call(name, ids.take(call.get("id"), at), arguments), status)


def _or_default(value: object, unsaid: object) -> object:
    return unsaid if value is None else value


def _readable(answer: bytes) -> str:
    """The text of an answer that is no JSON; a page of markup says nothing to a client."""
    text = answer[:LONGEST_QUOTED_CHARS].decode("utf-8", "replace").strip()
    return "" if text.startswith("<") else text


def _complaint(part: object) -> object:
    return part.get("msg") if isinstance(part, dict) else part
