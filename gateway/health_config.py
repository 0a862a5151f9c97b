"""The sections `health` and `outliers` of the configuration: when an endpoint is left, and when it is left out."""

from typing import Annotated

from pydantic import Field, model_validator

from backends import BreakerRules
from backends.outliers import OutlierRules
from gateway.config_sections import PositiveFloat, PositiveInt, Section


class Health(Section):
    """What becomes of endpoints that fail, are silent, or do not move."""

    failures: PositiveInt = Field(3, description="Faults of its own in a row that open an endpoint's breaker.")
    open_s: PositiveFloat = Field(
        5.0, description="How long it then gets no requests, seconds; twice as long each further time."
    )
    open_max_s: PositiveFloat = Field(120.0, description="The longest of that, seconds.")
    probes: PositiveInt = Field(1, description="Requests at a time by which it is then tried.")
    first_byte_factor: Annotated[float, Field(ge=0, le=1000)] = Field(
        10.0,
        description="A silent endpoint is left for another after so many times of what a prompt and its queue should "
        "take; 0: only after `limits.first_byte_s`.",
    )
    first_byte_least_s: PositiveFloat = Field(30.0, description="Not before so many seconds, whatever is expected.")
    left_s: PositiveFloat = Field(
        5.0,
        description="A client that leaves an endpoint where nobody gets a first byte counts against that endpoint, "
        "if it waited for as long, and for `first_byte_factor` times of what was expected.",
    )
    stall_s: Annotated[float, Field(ge=0)] = Field(
        20.0, description="How long nothing moves where requests wait before others get the new ones, seconds; 0: off."
    )

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> "Health":
        if self.open_max_s < self.open_s:
            raise ValueError("open_max_s must not be less than open_s")
        return self

    @property
    def breaker(self) -> BreakerRules:
        """As the rules of breakers."""
        return BreakerRules(self.failures, self.open_s, self.open_max_s, self.probes)


class Outliers(Section):
    """Endpoints that do worse than their peers by far."""

    errors: bool = Field(True, description="Leave out endpoints that fail far more often than their peers.")
    slow: bool = Field(
        False,
        description="Leave out endpoints that take far longer for a token than their peers, each held against the "
        "speed that it is configured with.",
    )
    max_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.34, description="The largest share of the endpoints of a model that are left out, or away, at a time."
    )
    distance: Annotated[float, Field(ge=1, le=100)] = Field(
        4.0, description="How far is far: so many standard deviations of the peers, robustly estimated."
    )
    min_error_rate: Annotated[float, Field(gt=0, le=1)] = Field(
        0.1, description="The least share of failed requests, at the lower end of its 95 % interval."
    )
    min_slowdown: Annotated[float, Field(gt=1, le=1000)] = Field(
        3.0, description="The least factor by which a slow endpoint must be slower than the median."
    )
    min_samples: PositiveInt = Field(20, description="Requests, or measurements, below which nobody is judged.")
    interval_s: PositiveFloat = Field(10.0, description="How often endpoints are compared, seconds.")
    eject_s: PositiveFloat = Field(
        30.0, description="How long one is left out, seconds; twice as long each further time."
    )
    eject_max_s: PositiveFloat = Field(600.0, description="The longest of that, seconds.")
    return_s: Annotated[float, Field(ge=0)] = Field(
        30.0, description="How long it then gets less than its share of new work, seconds."
    )

    @property
    def is_on(self) -> bool:
        """Whether anything is judged."""
        return self.errors or self.slow

    @property
    def rules(self) -> OutlierRules:
        """As the rules of the decision."""
        return OutlierRules(
            most_share=self.max_share,
            distance=self.distance,
            least_rate=self.min_error_rate,
            least_factor=self.min_slowdown,
            least_samples=self.min_samples,
            base_s=self.eject_s,
            most_s=max(self.eject_max_s, self.eject_s),
            fails=self.errors,
            slow=self.slow,
        )
