"""A byte-level BPE `tokenizer.json` as a tiktoken encoding, so that the two libraries can be timed on one vocabulary.

tiktoken knows a token by its rank, the place of its merge; a `tokenizer.json` by any id. The tokens are the same, their
numbers are not.

Only for tokenizers that cut as SmolLM2's does: each digit alone, and the rest as GPT-2 did.
"""

import json
from pathlib import Path

import tiktoken

_PATTERN = "|".join(
    (
        r"'(?:[sdmt]|ll|ve|re)",
        r" ?\p{L}++",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]++",
        r"\s+(?=\p{N})",
        r"\s++$",
        r"\s+(?!\S)",
        r"\s",
    )
)
"""GPT-2's published pattern. Digits are taken out before it there, so here space in front of one stands alone."""


def tiktoken_twin(path: Path) -> tiktoken.Encoding:
    """The encoding of a `tokenizer.json`. Blocking, 0.3 s."""
    file = json.loads(path.read_text(encoding="utf-8"))
    byte_of = {char: byte for byte, char in enumerate(_alphabet())}
    ranks = {bytes([byte]): byte for byte in range(256)}
    for merge in file["model"]["merges"]:
        pair = merge if isinstance(merge, list) else merge.split(" ")
        ranks.setdefault(bytes(byte_of[char] for char in "".join(pair)), len(ranks))
    special = {token["content"]: len(ranks) + place for place, token in enumerate(file["added_tokens"])}
    return tiktoken.Encoding("twin", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens=special)


def _alphabet() -> list[str]:
    """The character that stands for each byte in the files of byte-level BPE: itself where it prints, else from U+0100
    on."""
    printing = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printing]
    return [chr(byte) if byte in printing else chr(256 + others.index(byte)) for byte in range(256)]
