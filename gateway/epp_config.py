"""The section `epp` of the configuration: the endpoint picker for gateways that are built on Envoy."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gateway.config_sections import Section


class Epp(Section):
    """Where `prefixgate epp` listens, and what it promises. Nothing of it matters to `prefixgate serve`."""

    host: str = Field("0.0.0.0", description="Address to bind for gRPC.")  # noqa: S104 - a service of a cluster
    port: Annotated[int, Field(ge=0, le=65535)] = Field(9002, description="Its port; 0 takes a free one.")
    tls: Literal["self_signed", "files", "off"] = Field(
        "self_signed",
        description="`self_signed` makes a certificate at each start, which gateways take by default; `files` uses "
        "`cert_file` and `key_file`; `off` speaks plain HTTP/2.",
    )
    cert_file: Path | None = Field(None, description="Certificate chain, PEM; read at the start.")
    key_file: Path | None = Field(None, description="Its key, PEM.")
    client_ca_file: Path | None = Field(None, description="Authorities of client certificates, which are needed then.")
    health_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        None, description="A further port with `grpc.health.v1` alone, without TLS, for probes that speak none."
    )
    request_body: Literal["full_duplex_streamed", "buffered"] = Field(
        "full_duplex_streamed", description="How bodies come from a gateway that does not say it."
    )
    response_body: Literal["full_duplex_streamed", "streamed", "buffered", "none"] = Field(
        "full_duplex_streamed", description="The same of answers."
    )
    unseen_answers: Literal["allow", "refuse"] = Field(
        "allow",
        description="What becomes of requests whose answers the gateway does not show: they are served and not billed, "
        "or refused with 503.",
    )
    fallbacks: Annotated[int, Field(ge=0, le=8)] = Field(
        0, description="Further endpoints that are named behind the chosen one, for a gateway that retries."
    )

    @model_validator(mode="after")
    def _files_are_there(self) -> "Epp":
        given = (self.cert_file is not None, self.key_file is not None)
        if self.tls == "files" and not all(given):
            raise ValueError("tls: files needs cert_file and key_file")
        if self.tls != "files" and any(given):
            raise ValueError("cert_file and key_file are for tls: files")
        if self.tls == "off" and self.client_ca_file is not None:
            raise ValueError("client_ca_file needs TLS")
        return self
