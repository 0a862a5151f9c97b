"""What engines read out of messages, tools and tool calls alike, before each has its own way with it.

{"role": "user", ...}                    --role_of-->           the message, "user"
{"function": {"name", "arguments"}}      --function_of-->       the function
"{...}" | {...}                          --arguments_of-->      the value; what is no JSON is the engine's to judge
                                         --parsed_arguments-->  an object, empty for what is none
"""

import json

from prefix_index.errors import TemplateFailed


def role_of(message: object) -> tuple[dict[str, object], str]:
    """A message and its role. Raises `TemplateFailed` where it is no object or has none."""
    if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
        raise TemplateFailed("each message must be an object with a role")
    return message, role


def function_of(call: object, what: str) -> dict[str, object]:
    """The function of a tool or a tool call. Raises `TemplateFailed` where there is none."""
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        raise TemplateFailed(f"each {what} must be an object with a function")
    return function


def arguments_of(arguments: object) -> object:
    """What a tool was called with: text is JSON, anything else stands for itself.

    Raises `ValueError` for text that is no JSON or is nested too deeply. O(length).
    """
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parsed_arguments(arguments: object) -> dict[str, object]:
    """What a tool was called with, where an engine replaces what is no JSON object by an empty one."""
    try:
        found = arguments_of(arguments)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
