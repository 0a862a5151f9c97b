"""All that turns the prompts of one served model into token ids: its tokenizer and its chat templates.

PromptView --template--> Rendered --segments--> Encoding --> TokenIds
     `--(a plain prompt, or ids already)-----^

Engines render one chat differently, so there is a variant for each kind of them (`for_engine`): same tokenizer, same
cache, same templates.
"""

import copy
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from prefix_index.errors import TemplateFailed, UnsupportedContent
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.model_directory import read_model_files
from prefix_index.prompt.render import ChatRenderer, plain_prompt, renderer_of
from prefix_index.prompt.types import Clock, PromptView, Rendered, Renderer, Unsupported
from prefix_index.segment_cache import SegmentCache
from prefix_index.segments import Encoding, SegmentedTokenizer
from prefix_index.tokens import HuggingFaceTokenizer, TiktokenTokenizer, WholeTokenizer
from prefix_index.types import TOKEN_BYTES

DEFAULT_TEMPLATE = "default"
TEMPLATE_WITH_TOOLS = "tool_use"
MiB = 1024 * 1024
CACHE_BYTES = 64 * MiB


class ModelText:
    """Tokenizer and templates of one model.

        prompt_of     render                    any thread; long when `renders_long` (weight.py)
        begin_prompt  cut, look up              the event loop
        Encoding      compute, finish           see segments.py

    `templates` by name: "tool_use" is taken for requests with tools where there is one, else "default"; none is fine
    for a model that only completes. `tokenizer` is None where only the engine has one: then only token ids are prompts.
    `needs_engine` names why chats (and without tokenizer, texts) must be tokenised by the engine; None where they need
    not. `now` is the engine's wall clock for templates that write the date. Nothing is shared between two of these, the
    cache included, unless one is the other's variant.
    """

    def __init__(
        self,
        tokenizer: WholeTokenizer | None,
        templates: Mapping[str, ChatTemplate],
        *,
        renderer: Renderer | None = None,
        now: Clock | None = None,
        cache_bytes: int = CACHE_BYTES,
        needs_engine: str | None = None,
    ) -> None:
        """`renderer` fixes the conventions; without it they are vLLM's, and `for_engine` may change them."""
        self.cache = SegmentCache(cache_bytes)
        self.tokenizer = None if tokenizer is None else SegmentedTokenizer(tokenizer, self.cache)
        self.templates = dict(templates)
        self.needs_engine = needs_engine
        self._now = now
        self._fixed = renderer is not None
        self._variants: dict[Renderer, ModelText] = {}
        self._speak(renderer or Renderer.VLLM)

    def for_engine(self, engine: str) -> "ModelText":
        """This model as an engine of that name renders it; itself where its conventions are given or the same.

        The first call for an engine may take some milliseconds, later ones none.
        """
        renderer = renderer_of(engine)
        if self._fixed or renderer is self._renderer:
            return self
        if renderer not in self._variants:
            variant = copy.copy(self)
            variant._speak(renderer)
        return self._variants[renderer]

    def prompt_of(self, view: PromptView) -> Rendered:
        """What the engine will read. Linear in the request.

        Raises `TemplateFailed`, or `UnsupportedContent` for what only the engine can tokenise.
        """
        if view.messages is None:
            return Rendered((plain_prompt(view),))
        if self.tokenizer is None:
            raise UnsupportedContent(Unsupported.NO_TOKENIZER)
        if self._renderer is Renderer.CUSTOM:
            raise UnsupportedContent(Unsupported.CUSTOM_ENCODER)
        template = TEMPLATE_WITH_TOOLS if view.tools and TEMPLATE_WITH_TOOLS in self.templates else DEFAULT_TEMPLATE
        if template not in self.templates:
            raise TemplateFailed("the model has no chat template")
        rendered = self._chats[template].render(view, self._now)
        return self._with_first_token(rendered, template) if self._renderer is Renderer.LLAMACPP else rendered

    def begin_prompt(self, prompt: Rendered, *, add_special_tokens: bool, space: int = 0) -> Encoding:
        """Look up what is known of a prompt in a space of the cache; see `Encoding` for the rest of the way.

        Raises `UnsupportedContent` for text where there is no tokenizer.
        """
        if self.tokenizer is not None:
            return self.tokenizer.begin_all(prompt.pieces, add_special_tokens=add_special_tokens, space=space)
        ids = [piece for piece in prompt.pieces if not isinstance(piece, str)]
        if len(ids) != len(prompt.pieces):
            raise UnsupportedContent(Unsupported.NO_TOKENIZER)
        return Encoding(list(ids))

    def begin(self, view: PromptView) -> Encoding:
        """`prompt_of` and `begin_prompt` in one."""
        return self.begin_prompt(self.prompt_of(view), add_special_tokens=view.add_special_tokens)

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text on its own. O(length), uncached; may be called in any thread.

        Raises `UnsupportedContent` where there is no tokenizer.
        """
        if self.tokenizer is None:
            raise UnsupportedContent(Unsupported.NO_TOKENIZER)
        return len(self.tokenizer.whole.encode(text, add_special_tokens=False)) // TOKEN_BYTES

    def _speak(self, renderer: Renderer) -> None:
        """Take up the conventions of `renderer`."""
        self._renderer = renderer
        self._chats = {name: ChatRenderer(template, renderer) for name, template in self.templates.items()}
        self._variants[renderer] = self

    def _with_first_token(self, rendered: Rendered, template: str) -> Rendered:
        """llama.cpp's tokenizer puts its first token in front of chats too, in place of one the template wrote."""
        first = self.templates[template].special_tokens.get("bos_token")
        text = rendered.pieces[0] if rendered.pieces else ""
        if self.tokenizer is None or not self.tokenizer.adds_before or not isinstance(first, str):
            return rendered
        if isinstance(text, str) and text.startswith(first):
            return rendered
        return Rendered((first, *rendered.pieces), rendered.exact)


def load_model_text(
    path: Path,
    chat_template: Path | None = None,
    now: Clock | None = None,
    *,
    renderer: Renderer | None = None,
    encoding: str | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> ModelText:
    """Read the tokenizer and templates of a model: a Hugging Face directory, a tokenizer.json or a .tiktoken file.

    A tiktoken file needs its `encoding` (cl100k_base, o200k_base, o200k_harmony) unless its name says it; without a
    template it only completes. The template is `chat_template` where given, else the directory's own. Kinds of models
    that engines render by code get `Renderer.CUSTOM` and say so in `needs_engine`, unless a template is given.
    `renderer` fixes whose conventions are followed, whatever the engine.
    Blocking (0.1 to 0.5 s). Raises `TokenizerUnavailable` or `TemplateFailed`.
    """
    files = read_model_files(path, chat_template, encoding)
    templates = {name: ChatTemplate(source, files.special_tokens) for name, source in files.templates.items()}
    build = partial(ModelText, templates=templates, now=now, cache_bytes=cache_bytes, needs_engine=files.needs_engine)
    if files.needs_engine is not None:
        renderer = Renderer.CUSTOM
    if files.tokenizer is None:
        return build(None, renderer=renderer)
    if files.encoding is not None:
        return build(TiktokenTokenizer.from_file(files.tokenizer, files.encoding), renderer=renderer)
    return build(HuggingFaceTokenizer.from_file(files.tokenizer, files.added_tokens), renderer=renderer)
