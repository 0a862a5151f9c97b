"""A lab of the micro model, over a text that repeats itself."""

import time

from backends.reference.model_files import ensure_model
from backends.reference.tokenizer import ModelTokenizer
from bench.lab.types import Lab
from tests.backends.reference.micro_model import micro_weights

TEXT = " ".join(f"Shelf {n} holds books about the number {n * n}." for n in range(60))


def micro_lab() -> Lab:
    tokenizer = ModelTokenizer(ensure_model("tiny"))
    return Lab(micro_weights(), tokenizer, TEXT, TEXT, "cpu", rounds=1, clock=time.process_time)
