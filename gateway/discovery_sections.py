"""The configuration's section `discovery`: where endpoints are found beside the list in `backends`."""

from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from gateway.backend_sections import Backend, GpuCount, GpuName, ShapeName
from gateway.config_sections import SERVER_NAME, PositiveFloat, PrefillRate, Section

DNS_LABEL: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
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
    server_name: str | None = Field(
        None, pattern=SERVER_NAME, description="What they are called and must prove to be; default: their addresses."
    )
    prefill_tokens_per_s: PrefillRate | None = Field(
        None, description="Prior for the prefill speed of these servers, tokens a second."
    )
    gpu: GpuName | None = Field(None, description="Their kind of GPU, for the priors of their speed.")
    gpus: GpuCount = Field(1, description="So many of them work as one for each.")
    gpu_model: ShapeName | None = Field(
        None, description="Which model they serve, for the same; default: one of 8 billion parameters."
    )
    role: Literal["both", "prefill", "decode"] = Field("both", description="What they are there for.")
    bootstrap_port: Port | None = Field(None, description="Where decode servers meet these prefill servers (SGLang).")

    @property
    def common(self) -> dict[str, object]:
        """The fields of `Backend` that are given here."""
        return self.model_dump(mode="json", exclude_unset=True, include=set(Backend.model_fields))


class ListedEndpoint(Backend):
    """One endpoint of a file."""

    draining: bool = Field(False, description="It is to get no new requests.")
    model: str | None = Field(None, max_length=256, description="What it serves, as its owner says; shown.")
    gpu_cost_per_hour: str | None = Field(
        None, pattern=r"^\d{1,9}(\.\d{1,9})?$", description="What it costs an hour, where the costs file does not say."
    )


class DnsSource(FoundEndpoints):
    """Endpoints behind a name."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?$", description="The name that is looked up."
    )
    kind: Literal["address", "srv"] = Field(
        "address",
        description="`address` asks for A and AAAA records, `srv` for services with their ports (extra `dns`).",
    )
    port: Port | None = Field(None, description="Port at each address; needed unless `srv`.")
    family: Literal["any", "ipv4", "ipv6"] = Field("any", description="Which addresses.")
    server: str | None = Field(
        None,
        pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?$",
        description="DNS server to ask in place of this machine's resolver, host:port (extra `dns`).",
    )
    interval_s: PositiveFloat = Field(10.0, description="Longest time between two look-ups, seconds.")
    misses: Annotated[int, Field(ge=1, le=100)] = Field(
        3, description="So many look-ups in a row must lack an address before it counts as gone."
    )

    @property
    def source(self) -> str:
        """Its name among the sources."""
        return f"dns:{self.name}" if self.port is None else f"dns:{self.name}:{self.port}"

    @property
    def needs_records(self) -> bool:
        """Whether the system's resolver is not enough."""
        return self.kind == "srv" or self.server is not None

    @property
    def server_place(self) -> tuple[str, int] | None:
        """Host and port of `server`."""
        if self.server is None:
            return None
        parts = urlsplit(f"//{self.server}")
        return parts.hostname or self.server, parts.port or 53

    @model_validator(mode="after")
    def _port_as_needed(self) -> "DnsSource":
        if (self.port is None) == (self.kind == "address"):
            raise ValueError("`address` needs a port, and `srv` records have their own")
        try:
            _ = self.server_place
        except ValueError:
            raise ValueError(f"server: {self.server} has no such port") from None
        return self


class KubernetesSource(FoundEndpoints):
    """Endpoints behind a Service of Kubernetes, or in any EndpointSlices with certain labels."""

    service: str | None = Field(None, pattern=DNS_LABEL, description="The Service; or `selector`.")
    selector: str | None = Field(
        None, min_length=1, max_length=1024, description="Label selector of EndpointSlices, as `kubectl -l` takes it."
    )
    namespace: str | None = Field(None, pattern=DNS_LABEL, description="Where; default: the gateway's own namespace.")
    port: Port | Annotated[str, Field(pattern=r"^[a-z0-9-]{1,63}$")] | None = Field(
        None, description="Name or number of the port; default: the one called `http`, else the first."
    )
    api_url: str | None = Field(
        None, pattern=r"^https?://[^\s@?#]+$", description="The API server; default: that of the gateway's own cluster."
    )
    api_token_file: Path | None = Field(
        SERVICE_ACCOUNT / "token", description="The service account's token, read anew for each request; none: nobody."
    )
    api_ca_file: Path | None = Field(
        SERVICE_ACCOUNT / "ca.crt", description="Certificate authority of the API server; none: the system's."
    )

    @property
    def labels(self) -> str:
        """The selector."""
        return self.selector if self.selector is not None else f"kubernetes.io/service-name={self.service}"

    @property
    def source(self) -> str:
        """Its name among the sources."""
        return f"kubernetes:{self.namespace or ''}/{self.service or self.selector}"

    @model_validator(mode="after")
    def _one_choice(self) -> "KubernetesSource":
        if (self.service is None) == (self.selector is None):
            raise ValueError("name a service, or give a selector")
        return self


class Discovery(Section):
    """Endpoints beside those in `backends`: where they are found, and how long one that is gone is remembered."""

    file: Path | None = Field(None, description="YAML or JSON list of endpoints, read anew when it changes.")
    admin_file: Path | None = Field(
        None, description="Where endpoints given to the admin API are kept; without it none can be given."
    )
    dns: tuple[DnsSource, ...] = Field((), description="Names behind which endpoints are.")
    kubernetes: tuple[KubernetesSource, ...] = Field((), description="Services of Kubernetes.")
    poll_s: PositiveFloat = Field(1.0, description="How often these files are looked at, seconds.")
    grace_s: Annotated[float, Field(ge=0, le=86400)] = Field(
        60.0, description="How long what an endpoint holds is remembered after no source lists it any more, seconds."
    )
    slow_start_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        0.0, description="How long an endpoint that joins is given less new work than it could take, seconds; 0: never."
    )
    max_endpoints: Annotated[int, Field(ge=1, le=4096)] = Field(
        1024,
        description="Most endpoints, `backends` included; what is found beyond is left out, and `/health` says so.",
    )

    @property
    def finds(self) -> bool:
        """Whether endpoints may come that `backends` does not list."""
        return self.file is not None or self.admin_file is not None or bool(self.dns or self.kubernetes)

    @model_validator(mode="after")
    def _one_source_a_name(self) -> "Discovery":
        names = [one.source for one in self.dns] + [one.source for one in self.kubernetes]
        doubles = sorted({name for name in names if names.count(name) > 1})
        if doubles:
            raise ValueError(f"listed twice: {', '.join(doubles)}")
        return self
