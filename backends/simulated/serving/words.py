"""Text to token ids: words, which cost nothing and need no file, or the tokens of a real model."""

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol
from zlib import crc32

from backends.reference.chat_template import load_chat_template
from backends.reference.errors import RequestRefused
from backends.reference.tokenizer import ModelTokenizer
from backends.simulated.serving.errors import Refused

Message = Mapping[str, object]

_SPECIAL: Final = r"~[0-9a-f]{6}\.\d+|<\|\w+\|>"
_PIECES: Final = re.compile(rf"{_SPECIAL}|\s+(?={_SPECIAL})|\s*\w+|\s*[^\w\s]|\s+")
_MOST_WORDS: Final = 1_000_000


class Vocabulary(Protocol):
    """What turns text and messages into token ids, which are smaller than its `size`."""

    size: int

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens written out in it are those."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, those that it does not know left out."""
        ...

    def render(self, messages: Sequence[Message], fields: Mapping[str, object], *, is_open: bool) -> str:
        """The prompt of a chat; `is_open`: it ends with the last message's text. Raises `Refused`."""
        ...


class Words:
    """A word, a sign or a piece of an answer is a token; its id is a checksum, so all engines agree on it.

    The template is ChatML. Ids can be turned back as long as their word was seen here.
    """

    size = 1 << 32

    def __init__(self) -> None:
        self._words: dict[int, str] = {}

    def encode(self, text: str) -> list[int]:
        """One pass, O(text)."""
        pieces: list[str] = _PIECES.findall(text)
        ids = [crc32(piece.encode("utf-8", "surrogatepass")) >> 1 for piece in pieces]
        if len(self._words) > _MOST_WORDS:
            self._words.clear()
        self._words.update(zip(ids, pieces, strict=True))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Words never seen are left out."""
        return "".join(self._words.get(one, "") for one in ids)

    def render(self, messages: Sequence[Message], fields: Mapping[str, object], *, is_open: bool) -> str:
        """ChatML, with the tools before it where there are any."""
        tools = fields.get("tools")
        parts = [f"<|im_start|>tools\n{tools}<|im_end|>\n"] if tools else []
        parts += [f"<|im_start|>{one.get('role')}\n{text_of(one.get('content'))}<|im_end|>\n" for one in messages]
        if is_open:
            parts[-1] = parts[-1].removesuffix("<|im_end|>\n")
        elif fields.get("add_generation_prompt", True):
            parts.append("<|im_start|>assistant\n")
        return "".join(parts)


class ModelTokens:
    """The tokens and the chat template of a Hugging Face directory."""

    def __init__(self, directory: Path) -> None:
        self._tokenizer = ModelTokenizer(directory)
        self.size = self._tokenizer.vocab_size
        self._template = load_chat_template(directory, None)

    def encode(self, text: str) -> list[int]:
        """Special tokens are not added: templates write them."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens included."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def render(self, messages: Sequence[Message], fields: Mapping[str, object], *, is_open: bool) -> str:
        """As the reference engine does it."""
        variables: dict[str, object] = {"add_generation_prompt": fields.get("add_generation_prompt", True)}
        if fields.get("tools"):
            variables["tools"] = fields["tools"]
        if is_open:
            variables["add_generation_prompt"] = False
        try:
            return self._template.render([dict(one) for one in messages], variables, continue_final_message=is_open)
        except RequestRefused as refused:
            raise Refused(400, str(refused)) from None


def vocabulary(directory: Path | None) -> Vocabulary:
    """Words, or what a model's directory says."""
    return Words() if directory is None else ModelTokens(directory)


def text_of(content: object) -> str:
    """The text of a message's content; parts are joined by newlines, as vLLM joins them."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def id_bytes(ids: Sequence[int]) -> bytes:
    """Token ids as unsigned 32-bit little-endian numbers."""
    return struct.pack(f"<{len(ids)}I", *ids)
