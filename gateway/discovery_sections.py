"""The configuration's section `discovery`: where endpoints are found beside the list in `backends`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gateway.config_sections import Backend, PositiveFloat, PrefillRate, Section

Port = Annotated[int, Field(ge=1, le=65535)]


class FoundEndpoints(Section):
    """What all endpoints of one source have in common, as `backends` has it for each."""

    scheme: Literal["http", "https"] = Field("http", description="How they are spoken to.")
    path: str = Field("", pattern=r"^(/[^\s?#]*)?$", description="Base path in front of every path.")
    api_key_file: Path | None = Field(None, description="File with the key these servers want.")
    api_key_env: str | None = Field(None, description="Environment variable with the key these servers want.")
    ca_file: Path | None = Field(None, description="Certificate authorities to trust in place of the system's.")
    cert_file: Path | None = Field(None, description="Client certificate for mutual TLS.")
    key_file: Path | None = Field(None, description="Private key of the client certificate.")
    prefill_tokens_per_s: PrefillRate | None = Field(
        None, description="Prior for the prefill speed of these servers, tokens a second."
    )

    @property
    def common(self) -> dict[str, object]:
        """The fields of `Backend` that are given here."""
        return self.model_dump(mode="json", exclude_unset=True, include=set(Backend.model_fields))


class ListedEndpoint(Backend):
    """One endpoint of a file."""

    draining: bool = Field(False, description="It is to get no new requests.")
    role: str | None = Field(None, pattern=r"^[A-Za-z0-9._-]{1,64}$", description="What it does; shown.")
    model: str | None = Field(None, max_length=256, description="What it serves, as its owner says; shown.")
    gpu_cost_per_hour: str | None = Field(
        None, pattern=r"^\d{1,9}(\.\d{1,9})?$", description="What it costs an hour; shown."
    )


class Discovery(Section):
    """Endpoints beside those in `backends`: where they are found, and how long one that is gone is remembered."""

    file: Path | None = Field(None, description="YAML or JSON list of endpoints, read anew when it changes.")
    admin_file: Path | None = Field(
        None, description="Where endpoints given to the admin API are kept; without it none can be given."
    )
    poll_s: PositiveFloat = Field(1.0, description="How often these files are looked at, seconds.")
    grace_s: Annotated[float, Field(ge=0, le=86400)] = Field(
        60.0, description="How long what an endpoint holds is remembered after no source lists it any more, seconds."
    )
    max_endpoints: Annotated[int, Field(ge=1, le=4096)] = Field(
        1024,
        description="Most endpoints, `backends` included; what is found beyond is left out, and `/health` says so.",
    )

    @property
    def finds(self) -> bool:
        """Whether endpoints may come that `backends` does not list."""
        return self.file is not None or self.admin_file is not None
