"""The keys file: tenants, their keys, and what each may do and spend.

    defaults:                                  # limits and budgets of tenants that have none of their own
      limits: {requests_per_minute: 600}
    tenants:
      - id: acme
        name: Acme K.K.
        share_group: group-1                   # default: alone, a group named after the tenant
        tags: {plan: gold}                     # on every row of the ledger
        limits: {requests_per_minute: 600, tokens_per_minute: 200000, concurrent: 32, cached_token_weight: 0}
        budgets: [{amount: 500, per: month, time_zone: Asia/Tokyo}]
        keys:
          - id: acme-1
            sha256: 9f86d0...
            prefix: pg-x7Kq                    # for display
            created_at: "2026-11-30T12:00:00Z"
            expires_at: "2027-11-30T12:00:00Z"
            scopes: {models: [llama-*], endpoints: [gpu-1], routes: [/v1/chat/completions], fallbacks: false}
            budgets: [{amount: 20, per: day}]
            retiring: [{sha256: 2c26b4..., expires_at: "2026-12-01T12:00:00Z"}]      # replaced by `keys rotate`

A key may have limits and budgets of its own, within those of its tenant. Unknown fields are errors.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final

import yaml
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from billing import PeriodInvalid
from billing.quotas.types import MOST_MICRO, Allowance, Budget, Per, Quota
from billing.when import zone_named
from gateway.strict_yaml import load_yaml
from gateway.types import Scopes

_MICRO: Final = 10**6


class KeysFileInvalid(Exception):
    """The keys file cannot be used; the text names the entry and what is wrong, never a key."""


def _in_utc(value: object) -> object:
    """A time without a zone, such as YAML's own timestamps, is UTC."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _known_zone(name: str) -> str:
    try:
        zone_named(name)
    except PeriodInvalid as error:
        raise ValueError(str(error)) from None
    return name


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Display = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,16}$")]
When = Annotated[AwareDatetime, BeforeValidator(_in_utc)]
TagName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.-]{0,31}$")]
TagValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/@+-]{0,63}$")]
Limit = Annotated[int, Field(ge=1, le=10**12)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitsEntry(_Entry):
    """Limits of a tenant or a key; absent = none."""

    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    concurrent: Limit | None = None
    cached_token_weight: Annotated[float, Field(ge=0, le=1)] | None = None


class BudgetEntry(_Entry):
    """Money a calendar day or month."""

    amount: Annotated[Decimal, Field(ge=0, le=MOST_MICRO // _MICRO, decimal_places=6)]
    per: Per
    time_zone: Annotated[str, AfterValidator(_known_zone)] = "UTC"
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] | None = None

    def budget(self) -> Budget:
        """As billing counts it."""
        return Budget(int(self.amount * _MICRO), self.per, self.time_zone, self.currency)


class ScopesEntry(_Entry):
    """What a key is for; absent = everything."""

    models: list[Text] | None = None
    endpoints: list[Name] | None = None
    routes: list[Annotated[str, StringConstraints(pattern=r"^/\S{0,199}$")]] | None = None
    fallbacks: bool = True

    def scopes(self) -> Scopes | None:
        """As requests are held against; None where nothing is narrowed."""
        models, endpoints, routes = (
            None if names is None else frozenset(names) for names in (self.models, self.endpoints, self.routes)
        )
        found = Scopes(models, endpoints, routes, self.fallbacks)
        return None if found == Scopes() else found


class RetiringEntry(_Entry):
    """A key that was replaced and still works for a while."""

    sha256: Digest
    prefix: Display | None = None
    expires_at: When


class _Owner(_Entry):
    id: Name
    name: Text | None = None
    disabled: bool = False
    tags: dict[TagName, TagValue] = Field(default_factory=dict, max_length=8)
    limits: LimitsEntry | None = None
    budgets: list[BudgetEntry] | None = None

    def allowance(self, key_id: str | None, defaults: "DefaultsEntry") -> Allowance:
        """What it may use; `defaults` where it says nothing."""
        limits = self.limits or defaults.limits or LimitsEntry()
        budgets = defaults.budgets if self.budgets is None else self.budgets
        return Allowance(
            key_id,
            limits.requests_per_minute,
            limits.tokens_per_minute,
            limits.concurrent,
            tuple(entry.budget() for entry in budgets or ()),
        )


class KeyEntry(_Owner):
    """One key."""

    sha256: Digest
    prefix: Display | None = None
    created_at: When | None = None
    expires_at: When | None = None
    scopes: ScopesEntry = ScopesEntry()
    retiring: list[RetiringEntry] = Field(default_factory=list)


class TenantEntry(_Owner):
    """One tenant."""

    share_group: Name | None = None
    keys: list[KeyEntry]


class DefaultsEntry(_Entry):
    """What tenants have that say nothing of their own."""

    limits: LimitsEntry | None = None
    budgets: list[BudgetEntry] | None = None


class KeysFile(_Entry):
    """All of it."""

    defaults: DefaultsEntry = DefaultsEntry()
    tenants: list[TenantEntry] = Field(min_length=1)

    def quota(self, tenant: TenantEntry, key: KeyEntry, cached_token_weight: float) -> Quota | None:
        """All limits that requests with a key are under; None where there are none."""
        both = (tenant.allowance(None, self.defaults), key.allowance(key.id, DefaultsEntry()))
        allowances = tuple(one for one in both if not one.is_empty)
        said = [entry.cached_token_weight for entry in (tenant.limits or self.defaults.limits,) if entry is not None]
        weight = next((one for one in said if one is not None), cached_token_weight)
        return Quota(tenant.id, allowances, round(weight * 1000)) if allowances else None


def tags_of(tenant: TenantEntry, key: KeyEntry) -> Mapping[str, str] | None:
    """Tags of requests with a key: the tenant's, and over them the key's."""
    return {**tenant.tags, **key.tags} or None


def read_keys_file(path: Path) -> KeysFile:
    """Read a keys file. Raises `KeysFileInvalid` for unknown fields, doubled ids or keys, and unreadable files."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise KeysFileInvalid(
            f"{path}: there is no such file; `prefixgate keys create TENANT --file {path}` makes it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise KeysFileInvalid(f"{path}: {error}") from error
    return parse_keys_file(path, text)


def parse_keys_file(path: Path, text: str) -> KeysFile:
    """The same of its text; `path` is for the error."""
    try:
        parsed = KeysFile.model_validate(load_yaml(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f" in line {mark.line + 1}"  # without the line itself
        raise KeysFileInvalid(f"{path}: {error.problem}{where}") from None
    except yaml.YAMLError as error:
        raise KeysFileInvalid(f"{path}: {error}") from None
    except ValidationError as error:
        places = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        raise KeysFileInvalid(f"{path}: {places}") from None
    _refuse_doubles(path, "tenant", [tenant.id for tenant in parsed.tenants])
    _refuse_doubles(path, "key", [key.id for tenant in parsed.tenants for key in tenant.keys])
    digests: set[str] = set()
    for key in (key for tenant in parsed.tenants for key in tenant.keys):
        for digest in (key.sha256, *(old.sha256 for old in key.retiring)):
            if digest in digests:
                raise KeysFileInvalid(f"{path}: the key {key.id!r} is also another key's")
            digests.add(digest)
    return parsed


def _refuse_doubles(path: Path, what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise KeysFileInvalid(f"{path}: there are two of the {what} id {name!r}")
        seen.add(name)
