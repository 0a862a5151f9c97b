"""What the machines cost: endpoints with their GPUs and the price of an hour, from a YAML file.

    currency: USD
    endpoints:
      - endpoint: gpu-a                  # the backend's id, as the ledger names it
        gpu_type: H100 SXM
        gpus: 8
        per_gpu_hour: 2.50               # rented; or owned:
        from: 2026-11-01
        to: 2027-01-01                   # exclusive; absent = until further notice
      - endpoint: gpu-b
        gpu_type: L40S
        gpus: 2
        owned: {price_per_gpu: 9000, life_years: 4, watts_per_gpu: 350, per_kwh: 0.14}
        from: 2026-11-01

    owned, an hour and GPU = (price - residual) / (life_years x 8,766 h)  +  watts / 1000 x pue x per_kwh  +  other

Straight-line: every hour of a machine's life bears the same, used or not. Rates are fractions, never floats; an amount
is the difference of two whole numbers of pico-units since 1970, so the amounts of adjacent spans add up exactly.
Periods of one endpoint are half-open and must not overlap. Time without a rate has no known cost, which is not zero.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from billing.errors import CostsInvalid, PeriodInvalid, YamlInvalid
from billing.exact_yaml import read_exact
from billing.money import PICO
from billing.when import parse_when, to_us

HOUR_US: Final = 3600 * 10**6
HOURS_OF_A_YEAR: Final = Fraction(36525 * 24, 100)
DEFAULT_KV_SHARE: Final = Fraction(1, 10)
"""Part of decoding that is reading the KV of contexts, where nothing better is known: a fixed ratio, named so."""


@dataclass(frozen=True, slots=True)
class KvReading:
    """How much of decoding is reading the KV of the context.

    A decode step reads the weights once for its batch, and the KV of every token in the batch's contexts. With both
    sizes known the part is kv / (weights + kv) at the batch and contexts of the hour; else it is `share`.
    """

    share: Fraction = DEFAULT_KV_SHARE
    weight_bytes: int | None = None
    kv_bytes_per_token: int | None = None

    @property
    def is_fixed(self) -> bool:
        """Whether it is a fixed ratio, and no figure of the hour."""
        return self.weight_bytes is None or self.kv_bytes_per_token is None

    def of(self, context_tokens: Fraction) -> Fraction:
        """The part, where the contexts that are decoded together have so many tokens on average."""
        if self.weight_bytes is None or self.kv_bytes_per_token is None:
            return self.share
        kv_bytes = context_tokens * self.kv_bytes_per_token
        return kv_bytes / (self.weight_bytes + kv_bytes)


@dataclass(frozen=True, slots=True)
class EndpointRate:
    """What an endpoint costs an hour, all its GPUs together, in [valid_from, valid_to)."""

    endpoint_id: str
    gpu_type: str
    gpus: int
    pico_per_hour: Fraction
    owned: bool
    valid_from: datetime
    valid_to: datetime | None = None
    kv: KvReading = KvReading()

    def cost_pico(self, start_us: int, end_us: int) -> int:
        """The cost of a span; those of adjacent spans add up to that of both."""
        rate = self.pico_per_hour
        hour = rate.denominator * HOUR_US
        return rate.numerator * end_us // hour - rate.numerator * start_us // hour


@dataclass(frozen=True, slots=True)
class CostBook:
    """Rates of endpoints by time, in one currency. Raises `CostsInvalid` where two contradict each other."""

    currency: str
    rates: tuple[EndpointRate, ...]
    _by_endpoint: dict[str, list[EndpointRate]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for rate in sorted(self.rates, key=lambda rate: rate.valid_from):
            of_endpoint = self._by_endpoint.setdefault(rate.endpoint_id, [])
            if of_endpoint:
                _check_disjoint(of_endpoint[-1], rate)
            of_endpoint.append(rate)

    @classmethod
    def load(cls, path: Path | str) -> "CostBook":
        """Read a costs file. Raises `CostsInvalid`."""
        where = str(path)
        try:
            loaded = read_exact(Path(path).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise CostsInvalid(where, f"cannot be read: {error}") from error
        except YamlInvalid as error:
            raise CostsInvalid(where, str(error)) from None
        try:
            parsed = _File.model_validate(loaded)
        except ValidationError as error:
            said = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False))
            raise CostsInvalid(where, "; ".join(said)) from None
        return cls(parsed.currency, tuple(one.rate() for one in parsed.endpoints))

    @property
    def endpoint_ids(self) -> tuple[str, ...]:
        """All endpoints that it has a rate of, sorted."""
        return tuple(sorted(self._by_endpoint))

    def __contains__(self, endpoint_id: object) -> bool:
        """Whether it has a rate of an endpoint, whenever that is valid."""
        return endpoint_id in self._by_endpoint

    def rate_at(self, endpoint_id: str, when_us: int) -> EndpointRate | None:
        """The rate of an endpoint at a time, None where it has none."""
        rates = self._by_endpoint.get(endpoint_id, [])
        at = bisect_right(rates, when_us, key=lambda rate: to_us(rate.valid_from))
        if not at:
            return None
        rate = rates[at - 1]
        return rate if rate.valid_to is None or when_us < to_us(rate.valid_to) else None

    def cuts(self, endpoint_id: str, start_us: int, end_us: int) -> Iterator[tuple[int, int]]:
        """The hours of a period (UTC), cut further where a rate begins or ends; they fill it without a gap."""
        marks = {start_us, end_us, *range(start_us - start_us % HOUR_US + HOUR_US, end_us, HOUR_US)}
        for rate in self._by_endpoint.get(endpoint_id, []):
            ends = (rate.valid_from, rate.valid_to)
            marks.update(at for at in (to_us(one) for one in ends if one is not None) if start_us < at < end_us)
        ordered = sorted(marks)
        return pairwise(ordered)


def _check_disjoint(earlier: EndpointRate, later: EndpointRate) -> None:
    if earlier.valid_to is None or earlier.valid_to > later.valid_from:
        raise CostsInvalid(
            f"endpoint {later.endpoint_id}",
            f"two of its rates overlap; end the earlier with `to: {later.valid_from.isoformat()}`",
        )


def _when(value: object) -> datetime:
    if not isinstance(value, str):
        raise ValueError("must be a date or time")  # noqa: TRY004 - pydantic's way to refuse
    try:
        return parse_when(value)
    except PeriodInvalid as error:
        raise ValueError(str(error)) from None


_Money = Annotated[Decimal, Field(ge=0, le=10**9, allow_inf_nan=False)]
_Time = Annotated[datetime, BeforeValidator(_when)]
_Count = Annotated[int, Field(gt=0, le=10**15)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Owned(_Entry):
    price_per_gpu: _Money
    residual_per_gpu: _Money = Decimal(0)
    life_years: Annotated[Decimal, Field(gt=0, le=100, allow_inf_nan=False)]
    watts_per_gpu: _Money = Decimal(0)
    pue: Annotated[Decimal, Field(ge=1, le=10, allow_inf_nan=False)] = Decimal(1)
    per_kwh: _Money = Decimal(0)
    other_per_gpu_hour: _Money = Decimal(0)

    @model_validator(mode="after")
    def _loses_value(self) -> "_Owned":
        if self.residual_per_gpu > self.price_per_gpu:
            raise ValueError("residual_per_gpu is above price_per_gpu")
        return self

    def per_gpu_hour(self) -> Fraction:
        lost = Fraction(self.price_per_gpu) - Fraction(self.residual_per_gpu)
        power = Fraction(self.watts_per_gpu) / 1000 * Fraction(self.pue) * Fraction(self.per_kwh)
        return lost / (Fraction(self.life_years) * HOURS_OF_A_YEAR) + power + Fraction(self.other_per_gpu_hour)


class _Endpoint(_Entry):
    endpoint: Annotated[str, Field(min_length=1)]
    gpu_type: Annotated[str, Field(min_length=1)]
    gpus: Annotated[int, Field(gt=0, le=10**6)] = 1
    per_gpu_hour: _Money | None = None
    owned: _Owned | None = None
    from_: Annotated[_Time, Field(alias="from")]
    to: _Time | None = None
    decode_kv_share: Annotated[Decimal, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    weight_bytes: _Count | None = None
    kv_bytes_per_token: _Count | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> "_Endpoint":
        if (self.per_gpu_hour is None) == (self.owned is None):
            raise ValueError("give per_gpu_hour (rented) or owned, one of them")
        if self.to is not None and self.to <= self.from_:
            raise ValueError("`to` must be after `from`")
        if (self.weight_bytes is None) != (self.kv_bytes_per_token is None):
            raise ValueError("give weight_bytes and kv_bytes_per_token, or neither")
        if self.weight_bytes is not None and self.decode_kv_share is not None:
            raise ValueError("give decode_kv_share, or the bytes that it follows from")
        return self

    def rate(self) -> EndpointRate:
        hour = Fraction(self.per_gpu_hour or 0) if self.owned is None else self.owned.per_gpu_hour()
        share = DEFAULT_KV_SHARE if self.decode_kv_share is None else Fraction(self.decode_kv_share)
        return EndpointRate(
            endpoint_id=self.endpoint,
            gpu_type=self.gpu_type,
            gpus=self.gpus,
            pico_per_hour=hour * self.gpus * PICO,
            owned=self.owned is not None,
            valid_from=self.from_,
            valid_to=self.to,
            kv=KvReading(share, self.weight_bytes, self.kv_bytes_per_token),
        )


class _File(_Entry):
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    endpoints: list[_Endpoint]
