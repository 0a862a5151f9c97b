"""A request's prompt as the engine will read it: text from a chat, text or token ids from a completion.

    messages, tools, ... --the engine's habits (vllm_chat.py, ...)--> what the template sees --template--> text
    prompt: "text" | ["text"]                                         -----------------------------------> text
    prompt: [1, 2, 3] | [[1, 2, 3]]                                   -----------------------------------> token ids

What cannot be known here raises `UnsupportedContent`, never a guess: a wrong guess looks like a working cache that
never hits. Everything is pure: the clock is an argument, nothing the client sent is changed. Linear in the request.
"""

from array import array
from collections.abc import Callable, Mapping

from prefix_index.errors import TemplateFailed, UnsupportedContent
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.llamacpp_chat import abilities_of, llamacpp_text
from prefix_index.prompt.llamacpp_language import LlamaCppEnvironment
from prefix_index.prompt.media import MediaMarks
from prefix_index.prompt.other_chats import tgi_text, trtllm_text
from prefix_index.prompt.plain_chat import plain_text
from prefix_index.prompt.sglang_chat import sglang_text
from prefix_index.prompt.types import Clock, PromptView, Rendered, Renderer, Unsupported
from prefix_index.prompt.vllm_chat import vllm_text
from prefix_index.token_bytes import pack
from prefix_index.types import TokenIds

ChatText = Callable[[PromptView, ChatTemplate, Clock | None, MediaMarks], str]

_RESERVED = frozenset({"messages", "conversation", "chat_template", "tokenize"})
"""Template arguments that would change what is rendered by what; engines refuse them."""

_CHAT_TEXTS: Mapping[Renderer, ChatText] = {
    Renderer.VLLM: vllm_text,
    Renderer.SGLANG: sglang_text,
    Renderer.TGI: tgi_text,
    Renderer.TRTLLM: trtllm_text,
    Renderer.PLAIN: plain_text,
}

_RENDERERS = {
    "vllm": Renderer.VLLM,
    "sglang": Renderer.SGLANG,
    "llamacpp": Renderer.LLAMACPP,
    "tgi": Renderer.TGI,
    "trtllm": Renderer.TRTLLM,
    "reference": Renderer.PLAIN,
}


def renderer_of(engine: str) -> Renderer:
    """The conventions of an engine; vLLM's where it is not known, which most servers come nearest to."""
    return _RENDERERS.get(engine, Renderer.VLLM)


class ChatRenderer:
    """One template with the conventions of one engine. Immutable, safe to share between threads.

    Compiling a template for llama.cpp and trying it out costs some milliseconds, once.
    """

    def __init__(self, template: ChatTemplate, renderer: Renderer) -> None:
        self._template = template
        self._chat_text = _CHAT_TEXTS.get(renderer)
        if renderer is Renderer.LLAMACPP:
            self._template = template.in_language(LlamaCppEnvironment)
            self._chat_text = _llamacpp(self._template)

    def render(self, view: PromptView, now: Clock | None = None) -> Rendered:
        """A chat. `now` is the engine's wall clock, for templates that write the date.

        Raises `TemplateFailed` for messages that no engine accepts, `UnsupportedContent` for what cannot be known.
        """
        if self._chat_text is None:
            raise UnsupportedContent(Unsupported.CUSTOM_ENCODER)
        if reserved := _RESERVED & view.template_kwargs.keys():
            raise TemplateFailed(f"a template argument may not be called {min(reserved)}")
        marks = MediaMarks()
        return marks.cut(self._chat_text(view, self._template, now, marks))


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


def _llamacpp(template: ChatTemplate) -> ChatText:
    abilities = abilities_of(template)

    def chat_text(view: PromptView, template: ChatTemplate, now: Clock | None, marks: MediaMarks) -> str:
        return llamacpp_text(view, template, abilities, now, marks)

    return chat_text


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32
