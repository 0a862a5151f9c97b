"""Reading a plans file: plans, and which tenant has which from when to when.

plans      fee, minimum, and what is included: tokens per bucket, or a pool of weighted tokens
tenants    a plan for each month; it changes at the beginning of one, in the time zone of the file
"""

from datetime import datetime
from fractions import Fraction
from itertools import pairwise
from math import lcm
from pathlib import Path

from billing.currencies import MINOR_UNIT_PLACES, minor_unit_pico
from billing.errors import PeriodInvalid, PricesInvalid
from billing.money import PICO
from billing.prices.fields import Fields, currency_of, listed, read_yaml, text_of
from billing.prices.plans import Allowance, Assignment, Plan, Plans, Pool, Proration, begins_month
from billing.prices.pricing import Bucket
from billing.when import zone_named

PLANS_KEYS = frozenset({"currency", "timezone", "plans", "tenants"})
PLAN_KEYS = frozenset(
    {"id", "name", "currency", "monthly_fee", "minimum_commitment", "proration", "included", "included_weighted"}
)
ALLOWANCE_KEYS = frozenset({"bucket", "tokens", "models", "overage_per_mtok"})
POOL_KEYS = frozenset({"tokens", "weights", "models", "overage_per_mtok"})
ASSIGNMENT_KEYS = frozenset({"plan", "from", "to"})

MOST_FEE = 10**12
"""Highest fee or minimum, in units of the currency."""

_BUCKETS = tuple(Bucket)


def load_plans(path: Path | str) -> Plans:
    """Read a plans file. Raises `PricesInvalid`, naming the file, the plan and what would help."""
    return parse_plans(text_of(Path(path)), str(path))


def parse_plans(text: str, where: str = "the text given") -> Plans:
    """Read the text of a plans file. Raises `PricesInvalid`."""
    file = Fields(read_yaml(text, where) or {}, where, PLANS_KEYS)
    timezone = file.optional_text("timezone") or "UTC"
    try:
        zone_named(timezone)
    except PeriodInvalid as error:
        raise file.wrong("timezone", f": {error}") from None
    default = currency_of(file.raw("currency"), where) if "currency" in file else None
    plans: dict[str, Plan] = {}
    for fields in file.entries("plans", PLAN_KEYS, "plan"):
        plan = _plan(fields, default)
        if plan.id in plans:
            raise fields.wrong("id", f": {plan.id!r} is used twice")
        plans[plan.id] = plan
    tenants = file.raw("tenants") or {}
    if not isinstance(tenants, dict):
        raise PricesInvalid(where, "`tenants` must be a mapping of tenants")
    assignments: list[Assignment] = []
    for tenant, entries in tenants.items():
        assignments += _assignments(str(tenant), listed(entries, where, str(tenant)), where, (plans, timezone))
    return Plans(plans, tuple(assignments), timezone)


def _plan(fields: Fields, default_currency: str | None) -> Plan:
    currency = currency_of(fields.raw("currency") or default_currency, fields.where)
    id_ = fields.text("id")
    included = tuple(_allowance(one) for one in fields.entries("included", ALLOWANCE_KEYS, "allowance"))
    for number, one in enumerate(included):
        if any(_share(one, other) for other in included[:number]):
            raise fields.wrong("included", f" has two allowances of {one.bucket} that share a model")
    pool = None
    if "included_weighted" in fields:
        if included:
            raise PricesInvalid(fields.where, "give `included` or `included_weighted`, not both")
        pool = _pool(Fields(fields.raw("included_weighted"), f"{fields.where}, included_weighted", POOL_KEYS))
    return Plan(
        id=id_,
        name=fields.optional_text("name") or id_,
        currency=currency,
        monthly_fee_pico=_amount(fields, "monthly_fee", currency),
        minimum_pico=_amount(fields, "minimum_commitment", currency),
        included=included,
        pool=pool,
        proration=Proration(fields.choice("proration", tuple(Proration), Proration.WHOLE)),
    )


def _amount(fields: Fields, key: str, currency: str) -> int:
    amount = fields.optional_decimal(key) or Fraction(0)
    if not 0 <= amount <= MOST_FEE:
        raise fields.wrong(key, f" must be between 0 and {MOST_FEE}")
    pico = amount * PICO
    if pico % minor_unit_pico(currency):
        raise fields.wrong(key, f": {currency} has {MINOR_UNIT_PLACES[currency]} decimal places")
    return int(pico)


def _share(one: Allowance, other: Allowance) -> bool:
    if one.bucket is not other.bucket:
        return False
    return one.models is None or other.models is None or bool(one.models & other.models)


def _allowance(fields: Fields) -> Allowance:
    key = "overage_per_mtok"
    return Allowance(
        bucket=Bucket(fields.choice("bucket", _BUCKETS)),
        tokens=fields.tokens("tokens"),
        models=fields.names("models"),
        overage_pico=fields.pico(key, fields.decimal(key)) if key in fields else None,
    )


def _pool(fields: Fields) -> Pool:
    weights = Fields(fields.raw("weights"), f"{fields.where}, weights", frozenset(_BUCKETS))
    fresh, cached, written, output = (_weight(weights, bucket) for bucket in _BUCKETS)
    key = "overage_per_mtok"
    rate = fields.pico(key, fields.decimal(key))
    parts = lcm(fresh.denominator, cached.denominator, written.denominator, output.denominator)
    if rate % parts:
        raise fields.wrong(key, f" must be a multiple of {parts} x 0.000001, so that a part of a token has a price")
    return Pool(fields.tokens("tokens"), (fresh, cached, written, output), rate, fields.names("models"))


def _weight(weights: Fields, bucket: Bucket) -> Fraction:
    weight = weights.decimal(bucket)
    if not 0 <= weight <= 1000 or (weight * 1000).denominator != 1:
        raise weights.wrong(bucket, " must be between 0 and 1000, with at most 3 decimal places")
    return weight


def _assignments(
    tenant: str, entries: list[object], where: str, known: tuple[dict[str, Plan], str]
) -> list[Assignment]:
    plans, timezone = known
    found = []
    for number, entry in enumerate(entries, 1):
        fields = Fields(entry, f"{where}, tenant {tenant}, entry {number}", ASSIGNMENT_KEYS)
        if (plan := fields.text("plan")) not in plans:
            raise fields.wrong("plan", f": there is no plan {plan!r}")
        found.append(Assignment(tenant, plan, *fields.period()))
    found.sort(key=lambda one: one.valid_from)
    for earlier, later in pairwise(found):
        _check_change(earlier, later, where, timezone)
    return found


def _check_change(earlier: Assignment, later: Assignment, where: str, timezone: str) -> None:
    """A month has one plan: a tenant may join or leave within it, but changes at its beginning."""
    at = f"{where}, tenant {later.tenant}"
    if earlier.valid_to is None or earlier.valid_to > later.valid_from:
        when = later.valid_from.isoformat()
        raise PricesInvalid(at, f"plan {later.plan_id} overlaps {earlier.plan_id}; end that one with `to: {when}`")
    moments: tuple[datetime, ...] = (earlier.valid_to, later.valid_from)
    if not all(begins_month(moment, timezone) for moment in moments):
        raise PricesInvalid(at, f"plans change at the beginning of a month, in {timezone}")
