"""A byte-level BPE `tokenizer.json` as a tiktoken encoding, so that the two libraries can be timed on one vocabulary.

The encoding is the one that prefixgate uses between special tokens (prefix_index/byte_pairs.py); here it finds those
too, as it would alone.
"""

from pathlib import Path

import tiktoken
import tokenizers

from prefix_index.byte_pairs import byte_pairs


def tiktoken_twin(path: Path) -> tiktoken.Encoding:
    """The encoding of a `tokenizer.json`, with its ids. Blocking, 0.3 s."""
    data = path.read_bytes()
    whole = tokenizers.Tokenizer.from_buffer(data)
    pairs = byte_pairs(data, whole)
    assert pairs is not None, "SmolLM2's tokenizer is proved equal"
    special = {token.content: number for number, token in whole.get_added_tokens_decoder().items()}
    numbered = ((piece, pairs.encoding.encode_single_token(piece)) for piece in pairs.encoding.token_byte_values())
    ordinary = {piece: number for piece, number in numbered if number not in special.values()}
    return tiktoken.Encoding("twin", pat_str=pairs.encoding._pat_str, mergeable_ranks=ordinary, special_tokens=special)
