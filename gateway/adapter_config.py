"""Section `adapters` of the configuration: LoRA adapters that engines do not list, and what is believed of all."""

from typing import Final

from pydantic import Field, NonNegativeInt, model_validator

from gateway.config_sections import PositiveFloat, PositiveInt, Section

MOST_NUMBER: Final = (1 << 31) - 1
"""Engines keep an adapter's number in 32 bits."""


class Adapter(Section):
    """An adapter that its engines do not name in `/v1/models`: those of TensorRT-LLM and llama.cpp, and those that an
    engine loads by itself when it is asked for them."""

    name: str = Field(min_length=1, description="The name by which clients ask for it, as a model.")
    model: str = Field(min_length=1, description="The model that it is for, as its engines name that.")
    backends: tuple[str, ...] | None = Field(
        None,
        description="Ids of the endpoints that have it, or load it when asked; default: TensorRT-LLM and "
        "llama.cpp that serve the model.",
    )
    path: str | None = Field(None, description="TensorRT-LLM: its directory, as the engine sees it.")
    number: NonNegativeInt | None = Field(
        None,
        le=MOST_NUMBER,
        description="TensorRT-LLM: a number of its own, over 0; llama.cpp: its place in the order of `--lora`.",
    )
    scale: float = Field(1.0, description="llama.cpp: how strongly it is applied.")

    @model_validator(mode="after")
    def _has_a_number(self) -> "Adapter":
        if self.path is not None and not self.number:
            raise ValueError(f"adapter {self.name}: give it a number over 0, by which TensorRT-LLM knows it again")
        return self


class Adapters(Section):
    """LoRA adapters."""

    load_s: PositiveFloat = Field(
        0.5, description="Seconds that loading one is believed to take, until first uses have shown it."
    )
    slots: PositiveInt | None = Field(
        None, description="How many an engine keeps ready at a time, where it does not tell (vLLM and SGLang do)."
    )
    known: tuple[Adapter, ...] = Field((), description="Adapters that engines do not list themselves.")

    @model_validator(mode="after")
    def _named_once(self) -> "Adapters":
        names = [one.name for one in self.known]
        doubles = sorted({name for name in names if names.count(name) > 1})
        if doubles:
            raise ValueError(f"two adapters are called {', '.join(doubles)}")
        return self
