"""What a model's files say about text.

tokenizer.json             the tokenizer
tokenizer_config.json      special tokens, added tokens, and often the chat template (one, or several by name)
special_tokens_map.json    special tokens of older directories
chat_template.jinja        the chat template of newer ones; wins; further ones in additional_chat_templates/
chat_template.json         the chat template of older processors, where there is no other
config.json                the kind of model

Some models cannot be read from these files alone; they are known by their files, never by guessing, and what they need
the engine for has a name:

harmony, deepseek_v32, ... chats are written by code of the engine, whatever template there is
mistral                    tekken.json, tokenizer.model.v*: tokenizer and chats are Mistral's own

As transformers 5 reads a directory, `add_bos_token` and `add_eos_token` of tokenizer_config.json change nothing where
there is a tokenizer.json, whose post-processor decides; added tokens and special tokens that it lacks are added to it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from prefix_index.errors import TokenizerUnavailable
from prefix_index.tiktoken_encodings import ENCODINGS
from prefix_index.tokens import AddedTokenSpec

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

_CUSTOM_ENCODERS = {
    "gpt_oss": "harmony",
    "GptOssForCausalLM": "harmony",
    "deepseek_v32": "deepseek_v32",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "deepseek_v4": "deepseek_v4",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "DeepseekV4ForConditionalGeneration": "deepseek_v4",
    "deepseek_v41": "deepseek_v41",
    "DeepseekV41ForCausalLM": "deepseek_v41",
    "kimi_k3": "kimi_k3",
    "KimiK3ForConditionalGeneration": "kimi_k3",
    "InklingForCausalLM": "inkling",
    "InklingForConditionalGeneration": "inkling",
}
"""Kinds of models, and architectures, whose chats engines render by code, whatever template lies beside (vLLM 0.32)."""

_OTHER_FORMATS = {
    "tokenizer.model": "a SentencePiece tokenizer",
    "tiktoken.model": "a tiktoken tokenizer",
}
_MISTRAL_WEIGHTS = ("consolidated*.safetensors", "params.json")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where the tokenizer is, and what the configuration files hold. `templates` are sources by name.

    `tokenizer` is None where only the engine can read it. `encoding` is set for a .tiktoken file. `needs_engine` names
    why chats cannot be rendered here, None where they can.
    """

    tokenizer: Path | None
    templates: Mapping[str, str]
    special_tokens: Mapping[str, object]
    added_tokens: tuple[AddedTokenSpec, ...] = ()
    encoding: str | None = None
    needs_engine: str | None = None


def read_model_files(path: Path, chat_template: Path | None = None, encoding: str | None = None) -> ModelFiles:
    """Read a model directory, a tokenizer.json, or a .tiktoken file, which needs an `encoding` if its name is none.

    `chat_template` replaces the model's own, and then chats are rendered here whatever the model is.
    Raises `TokenizerUnavailable`.
    """
    if path.is_file():
        return _single_file(path, chat_template, encoding)
    if encoding is not None:
        found = sorted((*path.glob("*.tiktoken"), *path.glob("tiktoken.model")))
        if len(found) != 1:
            raise TokenizerUnavailable(str(path), f"there are {len(found)} tiktoken files; name the file")
        return _single_file(found[0], chat_template, encoding)
    return _directory(path, chat_template)


def _single_file(path: Path, chat_template: Path | None, encoding: str | None) -> ModelFiles:
    templates = {} if chat_template is None else {"default": _template_source(chat_template)}
    if encoding is None and path.suffix != ".tiktoken":
        return ModelFiles(path, templates, {})
    encoding = encoding or path.stem
    if encoding not in ENCODINGS:
        raise TokenizerUnavailable(str(path), f"its encoding must be given, one of {', '.join(sorted(ENCODINGS))}")
    needs_engine = "harmony" if encoding == "o200k_harmony" and not templates else None
    return ModelFiles(path, templates, {}, encoding=encoding, needs_engine=needs_engine)


def _directory(directory: Path, chat_template: Path | None) -> ModelFiles:
    tokenizer: Path | None = directory / "tokenizer.json"
    assert tokenizer is not None
    config = _json_object(directory / "tokenizer_config.json")
    needs_engine = None if chat_template else _needs_engine(directory)
    if not tokenizer.is_file():
        if not _is_mistral(directory):
            raise TokenizerUnavailable(str(tokenizer), _why_missing(directory))
        tokenizer, needs_engine = None, "mistral"
    older = _json_object(directory / "special_tokens_map.json")
    named = {**older, **{name: value for name, value in config.items() if value is not None}}
    return ModelFiles(
        tokenizer=tokenizer,
        templates=_templates(directory, chat_template, config),
        special_tokens=_special_tokens(named),
        added_tokens=tuple(_added_tokens(named)),
        needs_engine=needs_engine,
    )


def _needs_engine(directory: Path) -> str | None:
    model = _json_object(directory / "config.json")
    architectures = model.get("architectures")
    named = (model.get("model_type"), *(architectures if isinstance(architectures, list) else ()))
    known = (_CUSTOM_ENCODERS[name] for name in named if isinstance(name, str) and name in _CUSTOM_ENCODERS)
    return next(known, "mistral" if _is_mistral(directory) else None)


def _is_mistral(directory: Path) -> bool:
    """Whether engines take Mistral's own tokenizer: where there is one, and no other or Mistral's own weights."""
    own = (directory / "tekken.json").is_file() or any(directory.glob("tokenizer.model.v*"))
    has_other = (directory / "tokenizer.json").is_file()
    return own and (not has_other or any(any(directory.glob(name)) for name in _MISTRAL_WEIGHTS))


def _why_missing(directory: Path) -> str:
    if not directory.is_dir():
        return "there is no such directory here, and nothing is downloaded"
    for name, what in _OTHER_FORMATS.items():
        if (directory / name).exists():
            return f"there is {what} ({name}) instead; leave the path out to ask the engine for token ids"
    return "there is no such file"


def _templates(directory: Path, override: Path | None, config: Mapping[str, object]) -> dict[str, str]:
    if override is not None:
        return {"default": _template_source(override)}
    beside = directory / "chat_template.jinja"
    further = sorted((directory / "additional_chat_templates").glob("*.jinja"))
    named = {path.stem: _template_source(path) for path in further}
    if beside.is_file():
        return {"default": _template_source(beside), **named}
    own = config.get("chat_template") or _json_object(directory / "chat_template.json").get("chat_template")
    return {**_named_templates(own), **named}


def _named_templates(own: object) -> dict[str, str]:
    if isinstance(own, str):
        return {"default": own}
    return {
        entry["name"]: entry["template"]
        for entry in (own if isinstance(own, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)
    }


def _template_source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerUnavailable(str(path), f"unreadable chat template: {error}") from None


def _special_tokens(config: Mapping[str, object]) -> dict[str, object]:
    """Special tokens as template variables: each is a string, or an object with `content`."""
    found: dict[str, object] = {}
    for name in _SPECIAL_NAMES:
        if (text := _content(config.get(name))) is not None:
            found[name] = text
    additional = config.get("additional_special_tokens")
    if isinstance(additional, list):
        found["additional_special_tokens"] = [text for item in additional if (text := _content(item)) is not None]
    return found


def _added_tokens(config: Mapping[str, object]) -> Iterator[AddedTokenSpec]:
    """Tokens the configuration has besides tokenizer.json: by their number, then special ones by name."""
    decoder = config.get("added_tokens_decoder")
    numbered = decoder if isinstance(decoder, dict) else {}
    for _, token in sorted((int(number), token) for number, token in numbered.items() if number.isdecimal()):
        if (spec := AddedTokenSpec.read(token, must_differ=True)) is not None:
            yield spec
    lists = [config.get("additional_special_tokens"), config.get("extra_special_tokens")]
    further = [item for one in lists if isinstance(one, list) for item in one]
    for token in (*(config.get(name) for name in _SPECIAL_NAMES), *further):
        if (spec := AddedTokenSpec.read(token, must_differ=False)) is not None:
            yield spec


def _content(token: object) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _json_object(path: Path) -> Mapping[str, object]:
    """The object in a file; empty where there is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerUnavailable(str(path), str(error)) from None
    if not isinstance(content, dict):
        raise TokenizerUnavailable(str(path), "it does not hold a JSON object")
    return content
