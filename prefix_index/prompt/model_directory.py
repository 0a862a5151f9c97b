"""What a Hugging Face model directory says about text.

tokenizer.json             the tokenizer
tokenizer_config.json      special tokens, and often the chat template (one, or several by name)
special_tokens_map.json    special tokens of older directories
chat_template.jinja        the chat template of newer ones; wins
config.json                the kind of model
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prefix_index.errors import TokenizerUnavailable

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

_CUSTOM_ENCODERS = frozenset({"gpt_oss", "deepseek_v32", "deepseek_v4", "kimi_k3"})
"""Kinds of models whose chats engines render by code, whatever template lies beside them (vLLM 0.32)."""

_OTHER_FORMATS = {
    "tekken.json": "a Mistral tokenizer",
    "tokenizer.model": "a SentencePiece tokenizer",
    "tiktoken.model": "a tiktoken tokenizer",
}


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """Where the tokenizer is, and what the configuration files hold. `templates` are sources by name."""

    tokenizer: Path
    templates: Mapping[str, str]
    special_tokens: Mapping[str, object]
    custom_encoder: bool


def read_model_directory(directory: Path, chat_template: Path | None = None) -> ModelDirectory:
    """Read `directory`. `chat_template` replaces the model's own. Raises `TokenizerUnavailable`."""
    tokenizer = directory / "tokenizer.json"
    if not tokenizer.is_file():
        raise TokenizerUnavailable(str(tokenizer), _why_missing(directory))
    config = _json_object(directory / "tokenizer_config.json")
    older = _json_object(directory / "special_tokens_map.json")
    kind = _json_object(directory / "config.json").get("model_type")
    return ModelDirectory(
        tokenizer=tokenizer,
        templates=_templates(directory, chat_template, config),
        special_tokens=_special_tokens(older) | _special_tokens(config),
        custom_encoder=kind in _CUSTOM_ENCODERS,
    )


def _why_missing(directory: Path) -> str:
    if not directory.is_dir():
        return "there is no such directory"
    for name, what in _OTHER_FORMATS.items():
        if (directory / name).exists():
            return f"there is {what} ({name}) instead; leave the path out to ask the engine for token ids"
    return "there is no such file"


def _templates(directory: Path, override: Path | None, config: Mapping[str, object]) -> dict[str, str]:
    beside = directory / "chat_template.jinja"
    if path := override or (beside if beside.is_file() else None):
        try:
            return {"default": path.read_text(encoding="utf-8")}
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerUnavailable(str(path), f"unreadable chat template: {error}") from None
    own = config.get("chat_template")
    if isinstance(own, str):
        return {"default": own}
    named = own if isinstance(own, list) else []
    return {
        entry["name"]: entry["template"]
        for entry in named
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)
    }


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


def _content(token: object) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _json_object(path: Path) -> Mapping[str, object]:
    """The object in a file; empty where there is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerUnavailable(str(path), str(error)) from None
    if not isinstance(content, dict):
        raise TokenizerUnavailable(str(path), "it does not hold a JSON object")
    return content
