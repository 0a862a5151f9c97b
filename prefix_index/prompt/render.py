"""A request's prompt as the engine will read it: text from a chat, text or token ids from a completion.

    messages, tools, ... --messages.py--> what the template sees --chat_template.py--> text
    prompt: "text" | ["text"]                                   -------------------->  text
    prompt: [1, 2, 3] | [[1, 2, 3]]                             -------------------->  token ids

What cannot be known here raises `UnsupportedContent`, never a guess: a wrong guess looks like a working cache that
never hits. Everything is pure: the clock is an argument, nothing the client sent is changed. Linear in the request.
"""

from array import array
from collections.abc import Callable
from datetime import datetime

from prefix_index.errors import TemplateFailed, UnsupportedContent
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.messages import developer_as_system, template_messages, template_tools
from prefix_index.prompt.types import PromptView, Renderer, Unsupported
from prefix_index.token_bytes import pack
from prefix_index.types import TokenIds

_RESERVED = frozenset({"messages", "conversation", "chat_template", "tokenize"})
"""Template arguments that would change what is rendered by what; engines refuse them."""


def chat_text(
    view: PromptView, template: ChatTemplate, renderer: Renderer, now: Callable[[], datetime] | None = None
) -> str:
    """The text of a chat. `now` is the engine's wall clock, for templates that write the date.

    Raises `TemplateFailed` for messages that no engine accepts, `UnsupportedContent` for parts that are not text.
    """
    if reserved := _RESERVED & view.template_kwargs.keys():
        raise TemplateFailed(f"a template argument may not be called {min(reserved)}")
    messages = template_messages(view.messages or [], template.content_format, renderer)
    if renderer is Renderer.VLLM and not template.knows_developer:
        messages = developer_as_system(messages)
    variables = {
        **_variables(view, renderer),
        "tools": None if view.tools is None else template_tools(view.tools, renderer),
        "documents": view.documents,
        "add_generation_prompt": view.add_generation_prompt,
    }
    return template.render(messages, variables, continue_final_message=view.continue_final_message, now=now)


def plain_prompt(view: PromptView) -> str | TokenIds:
    """The prompt of a completion: text, token ids, or a list of exactly one of either."""
    prompt: object = view.prompt
    if isinstance(prompt, list) and prompt and not _is_id(prompt[0]):
        if len(prompt) > 1:
            raise UnsupportedContent(Unsupported.PROMPT_BATCH)
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and all(map(_is_id, prompt)):
        return pack(array("I", prompt))
    raise UnsupportedContent(Unsupported.PROMPT_FORM)


def _variables(view: PromptView, renderer: Renderer) -> dict[str, object]:
    variables = dict(view.template_kwargs)
    if view.reasoning_effort is not None:
        variables["reasoning_effort"] = view.reasoning_effort
        if renderer is Renderer.VLLM:
            variables.setdefault("enable_thinking", view.reasoning_effort != "none")
    return variables


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32
