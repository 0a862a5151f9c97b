"""A GGUF file small enough to be served fast: SmolLM2's own, less all but its first layers.

    metadata (tokenizer, shapes) ------------------------------> copied, only the number of layers changes
    token_embd, output_norm, blk.0 ... blk.29 --(0 and 1 only)--> copied byte for byte

What it says is gibberish; what it reads, how it counts and what it keeps in its cache are the whole model's. It reads
some thousands of tokens a second on two cores where the whole model reads about two hundred.
"""

import os
from pathlib import Path
from typing import Any

from gguf import GGUFReader, GGUFValueType, GGUFWriter

from backends.reference.model_files import cache_dir, smollm2_gguf

LAYERS = 2
_OWN_FIELDS = frozenset({"general.architecture"})
"""Written by the writer itself."""


def ensure_tiny_gguf() -> Path:
    """The file, made once (about 5 s, 46 MB) beside the converted models."""
    path = cache_dir() / f"smollm2-{LAYERS}-layers-v1.gguf"
    if not path.is_file():
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        _write(GGUFReader(smollm2_gguf()), scratch)
        scratch.rename(path)
    return path


def _write(whole: Any, path: Path) -> None:
    writer: Any = GGUFWriter(path, "llama")
    for field in whole.fields.values():
        if field.name in _OWN_FIELDS or field.name.startswith("GGUF."):
            continue
        value = LAYERS if field.name == "llama.block_count" else field.contents()
        element = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], sub_type=element)
    for tensor in whole.tensors:
        layer = tensor.name.split(".")[1]
        if not tensor.name.startswith("blk.") or int(layer) < LAYERS:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
