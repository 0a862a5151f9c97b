"""The words of the Messages dialect for how a chat answer ended and what it used.

    finish_reason          stop_reason
    length                 max_tokens
    stop, tool_calls       tool_use        every call of a tool is whole
                           stop_sequence   the server names the text at which it stopped
                           tool_use        there are calls
                           end_turn
    content_filter         refusal
    anything else          null

Token counts are read where all of them are, in `billing`, so an answer and its bill agree.
"""

from typing import Final

from billing import UsageMerger

_ENDS: Final = frozenset({"stop", "tool_calls", "function_call", "eos_token", "stop_sequence"})


def message_id(name: str) -> str:
    """The id of the message that a chat answer of this name becomes."""
    return f"msg_{name}"


def call_id(name: str, number: int) -> str:
    """An id for a call to which the server gave none; the client needs one to say whose result it sends."""
    return f"toolu_{name}_{number}"


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

    def add(self, usage: dict[str, object] | None) -> None:
        """Take one report; in a stream later ones complete it."""
        if usage is not None:
            self._merger.add(usage)

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
