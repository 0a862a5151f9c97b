"""The section `queue` of the configuration: how requests wait while all endpoints are full."""

from typing import Annotated

from pydantic import Field, model_validator

from gateway.config_sections import NAME_PATTERN, PositiveFloat, PositiveInt, Running, Section

MiB = 1 << 20


class QueueClass(Section):
    """A priority class."""

    name: str = Field(pattern=NAME_PATTERN, description="Its name, in metrics and in `x-prefixgate-priority`.")
    tenants: tuple[str, ...] = Field((), description="Tenants whose requests are of this class.")
    keys: tuple[str, ...] = Field((), description="Ids of keys whose requests are, whatever their tenant's class is.")
    service_tiers: tuple[str, ...] = Field(
        (), description="Values of the field `service_tier` by which a request asks for this class."
    )
    asked_by: tuple[str, ...] = Field(
        (),
        description="Tenants that may ask for it though it is above their own, `*`: all. Lower ones all may ask for.",
    )
    max_wait_s: PositiveFloat = Field(30.0, description="Longest wait, seconds.")
    max_requests: PositiveInt = Field(1024, description="Most requests of the class that wait, in one process.")
    max_bytes: PositiveInt = Field(256 * MiB, description="Most bytes of their bodies.")
    share: Annotated[float, Field(ge=0.01, le=1)] = Field(
        0.05, description="What it is owed, while it waits, of the tokens that go before it from higher classes."
    )


class Queue(Section):
    """Waiting before dispatch. There is none while no endpoint has a bound."""

    max_running: Running | None = Field(
        None, description="Requests at a time of endpoints that have no bound of their own; `auto` learns how many."
    )
    classes: tuple[QueueClass, ...] = Field(
        (QueueClass(name="default"),), min_length=1, max_length=8, description="Priority classes, the highest first."
    )
    default_class: str | None = Field(
        None, description="Class of tenants that none of them names; default: the first that names no tenants and keys."
    )
    weights: dict[str, Annotated[float, Field(ge=0.01, le=1000)]] = Field(
        default_factory=dict, description="Shares of tenants within their class; default 1."
    )
    tenant_requests: PositiveInt = Field(256, description="Most requests of one tenant that wait, in one process.")
    tenant_bytes: PositiveInt = Field(128 * MiB, description="Most bytes of their bodies.")
    quantum_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = Field(
        8192, description="How far a tenant may be ahead of the others for the sake of a prefix, uncached tokens."
    )
    most_passed: Annotated[int, Field(ge=0, le=1000)] = Field(
        4, description="How often a request may be passed by one whose prefix is at the endpoint; 0: never."
    )
    output_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.25, description="What an expected token of the answer counts for, against an uncached one of the prompt."
    )

    @model_validator(mode="after")
    def _names_are_clear(self) -> "Queue":
        names = [one.name for one in self.classes]
        if len(set(names)) < len(names):
            raise ValueError("two classes have one name")
        if self.default_class is not None and self.default_class not in names:
            raise ValueError(f"there is no class {self.default_class}")
        for what in ("tenants", "keys", "service_tiers"):
            listed = [name for one in self.classes for name in getattr(one, what)]
            doubles = sorted({name for name in listed if listed.count(name) > 1})
            if doubles:
                raise ValueError(f"in the {what} of two classes: {', '.join(doubles)}")
        return self

    @property
    def class_of_others(self) -> str:
        """The class of tenants that none of them names."""
        unnamed = (one.name for one in self.classes if not one.tenants and not one.keys)
        return self.default_class or next(unnamed, self.classes[0].name)
