"""The rules of the tiktoken encodings whose byte-pair file can be given locally.

A `.tiktoken` file holds only byte strings and their ranks; how text is cut before that, and which control tokens there
are, belongs to the encoding's name. These are the published definitions, in data.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EncodingRules:
    """`pattern` cuts text into pieces that merges never cross; `special_tokens` are control tokens and their ids."""

    pattern: str
    special_tokens: Mapping[str, int]


_CL100K_PATTERN = "|".join(
    (
        r"'(?i:[sdmt]|ll|ve|re)",
        r"[^\r\n\p{L}\p{N}]?+\p{L}++",
        r"\p{N}{1,3}+",
        r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
        r"\s++$",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s",
    )
)

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K_PATTERN = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

_O200K_SPECIAL = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
_HARMONY_NAMED = {
    "<|startoftext|>": 199998,
    "<|endoftext|>": 199999,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
}
_HARMONY_SPECIAL = (
    _O200K_SPECIAL
    | _HARMONY_NAMED
    | {f"<|reserved_{number}|>": number for number in range(200000, 201088) if number not in _HARMONY_NAMED.values()}
)

ENCODINGS: Mapping[str, EncodingRules] = {
    "cl100k_base": EncodingRules(
        _CL100K_PATTERN,
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": EncodingRules(_O200K_PATTERN, _O200K_SPECIAL),
    "o200k_harmony": EncodingRules(_O200K_PATTERN, _HARMONY_SPECIAL),
}
