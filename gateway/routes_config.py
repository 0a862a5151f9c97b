"""The section `model_routes` of the configuration: names that clients use, and the models that answer to them."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gateway.config_sections import PositiveFloat, Section

ARM_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$"
"""Of an arm: safe in headers and labels, and short enough for the ledger's `route_rule`."""

ModelName = Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,200}$")]
Reason = Literal["unavailable", "full", "failed", "slow", "too_long"]
_ALL: tuple[Reason, ...] = ("unavailable", "full", "failed", "slow", "too_long")


class RouteArm(Section):
    """One of the models that a name may mean."""

    model: ModelName = Field(description="The served model.")
    name: str | None = Field(
        None, pattern=ARM_NAME, description="Name of the arm in metrics and the ledger; default: made from the model's."
    )
    weight: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        1, description="Its share, against the sum of the weights; 0: it gets nothing."
    )
    endpoints: tuple[str, ...] = Field(
        (), description="Endpoints that serve this arm, a name may end in `*`; empty: all of the model."
    )

    @property
    def called(self) -> str:
        """Its name."""
        return self.name or re.sub(r"[^A-Za-z0-9._-]+", "-", self.model).strip("-._")[:48] or "arm"


class Canary(Section):
    """When an arm is stopped by itself, because it does worse than the others."""

    arm: str = Field(pattern=ARM_NAME, description="The arm that is watched.")
    most_errors: Annotated[float, Field(gt=0, le=1)] = Field(
        0.05, description="It is stopped where its share of failed requests is above that of the other arms by more."
    )
    most_ttft: Annotated[float, Field(gt=1, le=1000)] = Field(
        2.0, description="It is stopped where its median time to the first token is so many times that of the others."
    )
    min_requests: Annotated[int, Field(ge=20, le=1000)] = Field(
        100, description="Requests that both sides must have had in the window before they are compared."
    )
    window_s: PositiveFloat = Field(600.0, description="Requests older than that say nothing any more, seconds.")


class ModelRoute(Section):
    """A name that clients use."""

    name: ModelName = Field(description="What clients write in `model`; goes before a served model of that name.")
    model: ModelName | None = Field(
        None, description="The served model that it means; default: that of the same name, where there are no arms."
    )
    arms: tuple[RouteArm, ...] = Field((), max_length=16, description="Several that share its requests, by weight.")
    sticky: Literal["conversation", "prefix", "tenant", "request"] = Field(
        "conversation",
        description="What goes to one arm together: a job or conversation, prompts that begin alike, a tenant; none.",
    )
    fallbacks: tuple[ModelName, ...] = Field(
        (), max_length=8, description="Served models that answer in its place, in order; default: those of its model."
    )
    fall_back_on: tuple[Reason, ...] = Field(
        _ALL,
        description="Why: no endpoint, its queue is full, it failed before the first byte, it was silent too long, the "
        "prompt is too long for it.",
    )
    canary: Canary | None = Field(None, description="An arm that is stopped where it does worse; default: none is.")

    @property
    def all_arms(self) -> tuple[RouteArm, ...]:
        """Its arms; one where it means one model."""
        return self.arms or (RouteArm(model=self.model or self.name),)

    @model_validator(mode="after")
    def _is_clear(self) -> "ModelRoute":
        if self.model is not None and self.arms:
            raise ValueError(f"{self.name}: give a model, or arms")
        arms = self.all_arms
        _refuse_doubles(f"arms of {self.name}", [arm.called for arm in arms])
        if not any(arm.weight for arm in arms):
            raise ValueError(f"{self.name}: no arm has a weight")
        _refuse_doubles(f"fallbacks of {self.name}", self.fallbacks)
        if self.canary is not None:
            if self.canary.arm not in {arm.called for arm in arms}:
                raise ValueError(f"{self.name}: there is no arm {self.canary.arm}")
            if not any(arm.weight for arm in arms if arm.called != self.canary.arm):
                raise ValueError(f"{self.name}: beside the arm {self.canary.arm} there must be one to compare it with")
        return self


def refuse_unclear(routes: Sequence[ModelRoute]) -> None:
    """Raises `ValueError` where two routes have one name."""
    _refuse_doubles("model_routes", [route.name for route in routes])


def _refuse_doubles(what: str, names: Sequence[str]) -> None:
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise ValueError(f"{what}: {', '.join(doubles)} is there twice; give each a name of its own")
