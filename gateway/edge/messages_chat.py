"""What a chat answer says, read once for plain answers and streams, and the words of the Messages dialect for it.

    finish_reason          stop_reason
    length                 max_tokens
    stop, tool_calls       tool_use        every call of a tool is whole
                           stop_sequence   the server names the text at which it stopped
                           tool_use        there are calls
                           end_turn
    content_filter         refusal
    anything else          null

Servers differ in names: `reasoning` (vLLM) or `reasoning_content` (SGLang, llama.cpp), `stop_reason` (vLLM) or
`matched_stop` (SGLang). Token counts are read where all of them are, in `billing`, so an answer and its bill agree.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from billing import UsageMerger
from gateway.surrogates import decode

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What reading JSON from a server can raise."""
_ENDS: Final = frozenset({"stop", "tool_calls", "function_call", "eos_token", "stop_sequence"})


class Function(msgspec.Struct):
    """Name and arguments of a call; in a stream either may come later, and arguments in fragments."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    def text(self) -> str:
        """The arguments as JSON text; some servers send the object itself."""
        if isinstance(self.arguments, dict):
            return msgspec.json.encode(self.arguments).decode()
        return self.arguments or ""


class Call(msgspec.Struct):
    """A call of a tool, or a fragment of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Said(msgspec.Struct):
    """A message, or a delta of one."""

    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None

    def thinking(self) -> str:
        """The reasoning, whichever name it has."""
        return self.reasoning or self.reasoning_content or ""

    def text(self) -> str:
        """The answer, or the words in which it is refused."""
        return self.content or self.refusal or ""


class Choice(msgspec.Struct):
    """One of the answers; only the first has a place in the Messages dialect."""

    index: int | None = 0
    message: Said | None = None
    delta: Said | None = None
    finish_reason: str | None = None
    stop_reason: Any = None
    matched_stop: Any = None

    def matched(self) -> str | None:
        """The stop sequence at which the answer ended; ids of tokens are none."""
        return next((stop for stop in (self.stop_reason, self.matched_stop) if isinstance(stop, str)), None)


class ChatAnswer(msgspec.Struct):
    """A chat completion or a chunk of one; `error`, or `message` with `object: error`, where it failed."""

    id: str | None = None
    model: str | None = None
    object: str | None = None
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    message: Any = None

    def first(self) -> Choice | None:
        """The choice with index 0, or without one."""
        return next((choice for choice in self.choices or () if not choice.index), None)


_answer = msgspec.json.Decoder(ChatAnswer)


def decode_answer(data: bytes) -> ChatAnswer:
    """Reads an answer or a chunk; half a character becomes U+FFFD. Raises one of `UNREADABLE`. Linear."""
    return decode(_answer, data)


def message_id(chat_id: str | None) -> str:
    """The id of a message, from that of the chat."""
    return f"msg_{(chat_id or '').removeprefix('chatcmpl-')}"


def call_id(message: str, number: int) -> str:
    """An id for a call to which the server gave none; the client needs one to say whose result it sends."""
    return f"toolu_{message.removeprefix('msg_')}_{number}"


def stop_of(finish: str | None, matched: str | None, *, called: bool, whole: bool) -> tuple[str | None, str | None]:
    """`stop_reason` and `stop_sequence`. `called`: there are calls; `whole`: the arguments of all of them are.

    A call that a stop sequence cut short must not be run, so the sequence wins over it, as in vLLM.
    """
    if finish == "length":
        return "max_tokens", None
    if finish == "content_filter":
        return "refusal", None
    if finish not in _ENDS:
        return None, None
    if matched is not None and not (called and whole):
        return "stop_sequence", matched
    return "tool_use" if called else "end_turn", None


class Counts:
    """The usage of one answer in the words of the dialect, where `input_tokens` excludes what was read or written."""

    def __init__(self) -> None:
        self._merger = UsageMerger()

    def add(self, usage: object) -> None:
        """Take one report; in a stream later ones complete it. Anything but an object is passed over."""
        if isinstance(usage, dict):
            self._merger.add(_with_written(usage))

    def said(self) -> dict[str, int]:
        """The usage object. What the server did not report of the cache is absent: unknown is not zero. Only input
        and output cannot be, the wire type wants them in every answer; there 0 may mean unknown."""
        usage = self._merger.result().usage
        if usage is None:
            return {"input_tokens": 0, "output_tokens": 0}
        outside = (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0)
        counts = {
            "input_tokens": max(0, (usage.prompt_tokens or 0) - outside),
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens or 0,
        }
        return {name: count for name, count in counts.items() if count is not None}


def _with_written(usage: Mapping[str, object]) -> dict[str, object]:
    """The report with vLLM's name for what was written to the cache replaced by OpenAI's."""
    details = usage.get("prompt_tokens_details")
    if not isinstance(details, dict) or "created_cache_tokens" not in details:
        return dict(usage)
    return {**usage, "prompt_tokens_details": {"cache_write_tokens": details["created_cache_tokens"], **details}}
