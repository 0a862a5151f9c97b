"""All that turns the prompts of one served model into token ids: its tokenizer and its chat templates.

PromptView --template--> text --segments--> Encoding --> TokenIds
     `--(a plain prompt, or ids already)-----^
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import blake2b
from pathlib import Path

from prefix_index.errors import TemplateFailed, UnsupportedContent
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.model_directory import read_model_directory
from prefix_index.prompt.render import chat_text, plain_prompt
from prefix_index.prompt.types import PromptView, Renderer, Unsupported
from prefix_index.segment_cache import SegmentCache
from prefix_index.segments import Encoding, SegmentedTokenizer
from prefix_index.tokens import HuggingFaceTokenizer, WholeTokenizer
from prefix_index.types import TOKEN_BYTES, TokenIds

DEFAULT_TEMPLATE = "default"
TEMPLATE_WITH_TOOLS = "tool_use"
MiB = 1024 * 1024
CACHE_BYTES = 64 * MiB
LOOP_SAFE_MESSAGES = 200
"""Messages that may be rendered on the event loop: under 2 ms at 5 to 8 µs each."""


class ModelText:
    """Tokenizer and templates of one model.

        prompt_of     render                    any thread; long when `renders_long`
        begin_prompt  cut, look up              the event loop
        Encoding      compute, finish           see segments.py

    `templates` by name: "tool_use" is taken for requests with tools where there is one, else "default"; none is fine
    for a model that only completes. `now` is the engine's wall clock for templates that write the date.
    `fingerprint` digests all of it: models that differ in anything here share no chain. Nothing is shared between two
    of these, the cache included.
    """

    def __init__(
        self,
        tokenizer: WholeTokenizer,
        templates: Mapping[str, ChatTemplate],
        *,
        renderer: Renderer = Renderer.VLLM,
        now: Callable[[], datetime] | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.cache = SegmentCache(cache_bytes)
        self.tokenizer = SegmentedTokenizer(tokenizer, self.cache)
        self.templates = dict(templates)
        self.fingerprint = _fingerprint(tokenizer, templates, renderer)
        self._renderer = renderer
        self._now = now

    def text_of(self, view: PromptView) -> str:
        """The text of a chat. Linear in the request; raises `TemplateFailed` or `UnsupportedContent`."""
        if self._renderer is Renderer.CUSTOM:
            raise UnsupportedContent(Unsupported.CUSTOM_ENCODER)
        template = self.templates.get(TEMPLATE_WITH_TOOLS) if view.tools else None
        template = template or self.templates.get(DEFAULT_TEMPLATE)
        if template is None:
            raise TemplateFailed("the model has no chat template")
        return chat_text(view, template, self._renderer, self._now)

    @staticmethod
    def renders_long(view: PromptView) -> bool:
        """Whether `prompt_of` may take longer than 2 ms and so belongs in a thread."""
        return len(view.messages or ()) > LOOP_SAFE_MESSAGES

    def prompt_of(self, view: PromptView) -> str | TokenIds:
        """What the engine will read: text, or token ids the client sent. Linear in the request.

        Raises `TemplateFailed`, or `UnsupportedContent` for what only the engine can tokenise.
        """
        return self.text_of(view) if view.messages is not None else plain_prompt(view)

    def begin_prompt(self, prompt: str | TokenIds, *, add_special_tokens: bool) -> Encoding:
        """Look up what is known of a prompt; see `Encoding` for the rest of the way."""
        if isinstance(prompt, bytes):
            return Encoding([prompt])
        return self.tokenizer.begin(prompt, add_special_tokens=add_special_tokens)

    def begin(self, view: PromptView) -> Encoding:
        """`prompt_of` and `begin_prompt` in one."""
        return self.begin_prompt(self.prompt_of(view), add_special_tokens=view.add_special_tokens)

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text on its own. O(length), uncached; may be called in any thread."""
        return len(self.tokenizer.whole.encode(text, add_special_tokens=False)) // TOKEN_BYTES


def load_model_text(
    directory: Path,
    chat_template: Path | None = None,
    now: Callable[[], datetime] | None = None,
    *,
    renderer: Renderer = Renderer.VLLM,
    cache_bytes: int = CACHE_BYTES,
) -> ModelText:
    """Read the tokenizer and templates of a Hugging Face directory.

    The template is `chat_template` where given, else `chat_template.jinja`, else `tokenizer_config.json`'s own. Kinds
    of models that engines render by code get `Renderer.CUSTOM`, unless a template is given.
    Blocking (0.1 to 0.5 s). Raises `TokenizerUnavailable` or `TemplateFailed`.
    """
    files = read_model_directory(directory, chat_template)
    templates = {name: ChatTemplate(source, files.special_tokens) for name, source in files.templates.items()}
    if files.custom_encoder and chat_template is None:
        renderer = Renderer.CUSTOM
    tokenizer = HuggingFaceTokenizer.from_file(files.tokenizer)
    return ModelText(tokenizer, templates, renderer=renderer, now=now, cache_bytes=cache_bytes)


def _fingerprint(tokenizer: WholeTokenizer, templates: Mapping[str, ChatTemplate], renderer: Renderer) -> bytes:
    digest = blake2b(tokenizer.fingerprint, digest_size=16)
    for name in sorted(templates):
        digest.update(len(name).to_bytes(4, "little") + name.encode() + templates[name].fingerprint)
    digest.update(renderer.encode())
    return digest.digest()
