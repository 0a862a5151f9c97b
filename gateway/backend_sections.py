"""Sections of the configuration about model servers and their models."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from backends.hardware import GPUS
from backends.models import CATALOGUE
from billing import PeriodInvalid
from billing.when import zone_named
from gateway.config_sections import NAME_PATTERN, SERVER_NAME, PositiveInt, PrefillRate, Running, Section
from prefix_index.errors import EventSourceInvalid
from prefix_index.kv_events.sources import EventSource


def _named_in(names: Collection[str]) -> AfterValidator:
    def known(name: str) -> str:
        if name not in names:
            raise ValueError(f"{name} is none of {', '.join(names)}")
        return name

    return AfterValidator(known)


GpuName = Annotated[str, _named_in(GPUS)]
GpuCount = Annotated[int, Field(gt=0, le=1024)]
"""Of one endpoint; more than any has is a slip of the pen, and no speed that could be fitted."""
ShapeName = Annotated[str, _named_in(CATALOGUE)]


class KvEvents(Section):
    """Where one endpoint publishes what its KV cache gains and loses."""

    mode: Literal["auto", "poll", "off"] = Field(
        "auto",
        description="`auto` follows the events at `url`, else where the engine says it publishes; `poll` fetches them "
        "over HTTP (TensorRT-LLM); `off` never.",
    )
    url: str | None = Field(
        None, description="ZMQ address (tcp:// or ipc://). With `*` the gateway binds and the engine connects."
    )
    replay_url: str | None = Field(None, description="ZMQ address at which the engine repeats its latest events.")
    topic: str = Field("", description="Topic that the engine publishes under, whole; every topic where it is empty.")
    ranks: PositiveInt = Field(1, description="Data-parallel ranks; each has the port after the one before.")

    @property
    def sources(self) -> list[EventSource]:
        """The publisher of each rank, none without `url`."""
        first = self.url and EventSource(self.url, self.replay_url, self.topic)
        return [first.of_rank(rank) for rank in range(self.ranks)] if first else []

    @model_validator(mode="after")
    def _can_be_followed(self) -> "KvEvents":
        try:
            _ = self.sources
        except EventSourceInvalid as invalid:
            raise ValueError(str(invalid)) from None
        return self


class Backend(Section):
    """One endpoint: a model server with one KV cache of its own."""

    url: str = Field(description="Base URL of the server, http or https; a path in it is kept.")
    id: str | None = Field(
        None, pattern=NAME_PATTERN, description="Name in metrics, headers and the ledger; default: host and port."
    )
    api_key_file: Path | None = Field(None, description="File with the key this server wants.")
    api_key_env: str | None = Field(None, description="Environment variable with the key this server wants.")
    ca_file: Path | None = Field(None, description="Certificate authorities to trust in place of the system's.")
    cert_file: Path | None = Field(None, description="Client certificate for mutual TLS.")
    key_file: Path | None = Field(None, description="Private key of the client certificate.")
    server_name: str | None = Field(
        None, pattern=SERVER_NAME, description="What it is called and must prove to be; default: the URL's host."
    )
    prefill_tokens_per_s: PrefillRate | None = Field(
        None, description="Prior for the prefill speed of this server, tokens a second."
    )
    gpu: GpuName | None = Field(None, description="Its kind of GPU, for the priors of its speed.")
    gpus: GpuCount = Field(1, description="So many of them work as one for it.")
    gpu_model: ShapeName | None = Field(
        None, description="Which model it serves, for the same; default: one of 8 billion parameters."
    )
    max_running: Running | None = Field(
        None, description="Requests it takes at a time, further ones wait in the gateway; default: `queue.max_running`."
    )
    max_queued_tokens: PositiveInt | None = Field(
        None, description="Uncached prompt tokens on their way to it at most."
    )
    max_kv_use: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Share of its KV cache in use from which on it gets nothing more, 0 to 1."
    )
    pass_priority: bool = Field(
        False, description="Tell the engine the priority of a request's class; vLLM and SGLang, scheduling by priority."
    )
    choose_rank: bool = Field(
        True, description="Send each request to one data-parallel rank, where the engine takes a header for it."
    )
    kv_events: KvEvents = Field(KvEvents(), description="Where the server publishes the events of its KV cache.")
    role: Literal["both", "prefill", "decode"] = Field(
        "both",
        description="What it is there for: `prefill` computes prompts for others and answers nobody, `decode` answers.",
    )
    bootstrap_host: str | None = Field(
        None, pattern=SERVER_NAME, description="Where decode servers meet this prefill server; default: the URL's host."
    )
    bootstrap_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="Port of that (SGLang); default: the engine's own."
    )

    @property
    def name(self) -> str:
        """The endpoint's id."""
        place = re.sub(r"^[^/]*@", "", self.url.split("://", 1)[-1])  # credentials are refused, and not repeated
        return self.id or re.sub(r"[^A-Za-z0-9._-]+", "-", place.rstrip("/"))


class Model(Section):
    """Where the tokenizer and chat template of a served model are."""

    tokenizer: Path = Field(
        description="Directory with tokenizer.json and tokenizer_config.json, or a tokenizer.json, or a .tiktoken file."
    )
    encoding: Literal["cl100k_base", "o200k_base", "o200k_harmony"] | None = Field(
        None, description="Rules of a .tiktoken file whose name does not say them."
    )
    chat_template: Path | None = Field(None, description="Jinja file to use in place of the directory's own.")
    renderer: Literal["vllm", "sglang", "llamacpp", "tgi", "trtllm", "plain"] | None = Field(
        None, description="Whose way of reading messages to follow; default: that of the engine that serves the model."
    )
    timezone: str | None = Field(
        None, description="Time zone of the engine, for templates that write the date; default: the gateway's own."
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str | None) -> str | None:
        if name is not None:
            try:
                zone_named(name)
            except PeriodInvalid as error:
                raise ValueError(str(error)) from None
        return name
