"""The section `disaggregation` of the configuration: prompts computed at one endpoint, answers made at another."""

from typing import Annotated

from pydantic import Field

from gateway.config_sections import PositiveFloat, PrefillRate, Section


class Disaggregation(Section):
    """How requests are split between endpoints of the roles `prefill` and `decode`."""

    transfer_base_s: Annotated[float, Field(ge=0, le=60)] = Field(
        0.03, description="Prior for the fixed seconds between a decode call and its first token."
    )
    transfer_tokens_per_s: PrefillRate = Field(
        40_000.0, description="Prior for how fast a prompt's cache is carried from one endpoint to another, tokens/s."
    )
    set_aside_s: PositiveFloat = Field(
        60.0,
        description="How long an endpoint that hands nothing over, or a pair that fails together, is left out of "
        "splits, seconds.",
    )
