"""The sheets of a cost report: endpoints, tokens, margins, discounts, first fills, API or own; and of jobs.

All of it is the operator's. Columns of money are in the currency of the costs file.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from billing.counting import counted
from billing.economics.account import EndpointAccount
from billing.economics.discount import Worth, prefill_pico_per_token
from billing.economics.fills import BEFORE
from billing.economics.margin import Decile, Margin, grouped, heaviest
from billing.economics.report import CostReport, Job
from billing.economics.sheet import Column, Kind, Sheet, Value
from billing.when import from_us

_S_US = 10**6
_TEXT, _COUNT, _AMOUNT, _PER_MTOK, _SHARE, _SECONDS = (
    Kind.TEXT,
    Kind.COUNT,
    Kind.AMOUNT,
    Kind.PER_MTOK,
    Kind.SHARE,
    Kind.SECONDS,
)
ALL = "all"
MOST_USERS = 1000
"""End users are shown dearest first, so many of them."""
_NOBODY = "(nobody named)"

_MARGIN_COLUMNS = (
    Column("requests", _COUNT, "Requests"),
    Column("amount_revenue", _AMOUNT, "Revenue"),
    Column("amount_cost_busy", _AMOUNT, "Cost, busy"),
    Column("amount_cost_loaded", _AMOUNT, "Cost, loaded"),
    Column("amount_margin_busy", _AMOUNT, "Margin, busy"),
    Column("amount_margin_loaded", _AMOUNT, "Margin, loaded"),
    Column("gross_margin_busy", _SHARE, "Gross, busy"),
    Column("gross_margin_loaded", _SHARE, "Gross, loaded"),
    Column("token_tax_busy", _SHARE, "Token tax, busy"),
    Column("token_tax_loaded", _SHARE, "Token tax, loaded"),
    Column("notes", _TEXT, "Notes"),
)


def cost_sheets(report: CostReport) -> list[Sheet]:
    """All sheets of a report, in reading order."""
    return [
        endpoints_sheet(report),
        tokens_sheet(report),
        tenants_sheet(report),
        plans_sheet(report),
        users_sheet(report),
        heaviest_sheet(report),
        discounts_sheet(report),
        fills_sheet(report),
        api_sheet(report),
    ]


def endpoints_sheet(report: CostReport) -> Sheet:
    """What each endpoint cost, and to what its hours went: the parts add up to the cost."""
    columns = (
        Column("endpoint", _TEXT, "Endpoint"),
        Column("gpus", _TEXT, "GPUs"),
        Column("amount_per_hour", _AMOUNT, "Per hour"),
        Column("busy_s", _SECONDS, "Busy, s"),
        Column("idle_s", _SECONDS, "Idle, s"),
        Column("unrated_s", _SECONDS, "No rate, s"),
        Column("busy_share", _SHARE, "Busy share"),
        Column("amount_cost", _AMOUNT, "Cost"),
        Column("amount_fresh", _AMOUNT, "Fresh input"),
        Column("amount_cached", _AMOUNT, "Cached input"),
        Column("amount_output", _AMOUNT, "Output"),
        Column("amount_unmeasured", _AMOUNT, "Not measured"),
        Column("amount_lost", _AMOUNT, "Failed calls"),
        Column("amount_idle", _AMOUNT, "Idle"),
        Column("calls", _COUNT, "Calls"),
        Column("calls_measured", _COUNT, "Measured"),
        Column("calls_unmeasured", _COUNT, "Calls not measured"),
        Column("calls_lost", _COUNT, "Calls failed"),
    )
    notes = ["Cost = fresh + cached + output + not measured + failed calls + idle. Busy: a call is open."]
    if report.account.kv_is_fixed:
        notes.append("What decoding spends on reading the prompt's KV is a fixed ratio, no measurement, at endpoints")
        notes.append("without weight_bytes and kv_bytes_per_token in the costs file.")
    return Sheet("endpoints", "Endpoints", columns, [_endpoint_row(one) for one in report.account.endpoints], notes)


def _endpoint_row(one: EndpointAccount) -> Sequence[Value]:
    whole = Margin()
    for spent in one.spent.values():
        whole.spent.add(spent)
    spent, rate = whole.spent, one.rate
    kind = "" if rate is None else f"{rate.gpus} x {rate.gpu_type}, {'owned' if rate.owned else 'rented'}"
    return (
        *(one.endpoint_id, kind, None if rate is None else round(rate.pico_per_hour)),
        *(one.busy_us / _S_US, one.idle_us / _S_US, one.unrated_us / _S_US, one.utilisation),
        *(one.cost_pico, spent.fresh_pico, spent.cached_pico, spent.output_pico),
        *(spent.unmeasured_pico, spent.lost_pico, one.idle_pico),
        *(spent.calls, spent.measured_calls, spent.unmeasured_calls, spent.lost_calls),
    )


def tokens_sheet(report: CostReport) -> Sheet:
    """What a million tokens of a kind cost, by model; of measured calls."""
    columns = (
        Column("model", _TEXT, "Model"),
        Column("kind", _TEXT, "Tokens"),
        Column("tokens", _COUNT, "Number"),
        Column("per_mtok_busy", _PER_MTOK, "Busy, per million"),
        Column("per_mtok_loaded", _PER_MTOK, "Loaded, per million"),
    )
    rows: list[Sequence[Value]] = []
    models = sorted(grouped(report.tenant_models, lambda key: key[1]).items())
    for model, one in [*models, (ALL, report.whole())]:
        spent = one.spent
        for kind, tokens, busy, idle in (
            ("fresh input", spent.fresh_tokens, spent.fresh_pico, one.idle_fresh_pico),
            ("cached input", spent.cached_tokens, spent.cached_pico, one.idle_cached_pico),
            ("output", spent.output_tokens, spent.output_pico, one.idle_output_pico),
        ):
            per_token = (Fraction(busy, tokens), Fraction(busy + idle, tokens)) if tokens else (None, None)
            rows.append((model, kind, tokens, *per_token))
    notes = ["Busy: while calls are open. Loaded: with the idle time of the endpoints, in proportion."]
    return Sheet("tokens", "What a token cost", columns, rows, notes)


def tenants_sheet(report: CostReport) -> Sheet:
    """Margins by tenant and model; what plans bring beside usage, and idle endpoints, are lines of their own."""
    columns = (Column("tenant", _TEXT, "Tenant"), Column("model", _TEXT, "Model"), *_MARGIN_COLUMNS)
    rows: list[Sequence[Value]] = []
    for (tenant, model), one in sorted(report.tenant_models.items()):
        rows.append((tenant, model, *_margin_row(one)))
    for tenant, plan in sorted(report.plans.items()):
        if plan.beside_pico:
            rows.append((tenant, f"(plan {plan.plan_id})", *_margin_row(Margin(fees_pico=plan.beside_pico))))
    unborne = report.account.unborne_pico
    if unborne:
        rows.append(("(endpoints that nobody used)", "", *_margin_row(Margin(), unborne)))
    rows.append((ALL, "", *_margin_row(report.whole(), unborne)))
    return Sheet("tenants", "Revenue, cost of revenue and margin", columns, rows)


def plans_sheet(report: CostReport) -> Sheet:
    """Margins by plan; tenants without one are together."""
    columns = (Column("plan", _TEXT, "Plan"), Column("tenants", _COUNT, "Tenants"), *_MARGIN_COLUMNS)
    by_plan: dict[str, list[Margin]] = {}
    for tenant, one in report.by_tenant().items():
        by_plan.setdefault(_plan_of(report, tenant), []).append(one)
    rows = []
    for plan, of_plan in sorted(by_plan.items()):
        whole = Margin()
        for one in of_plan:
            whole.add(one)
        rows.append((plan, len(of_plan), *_margin_row(whole)))
    unknown = sorted(tenant for tenant, plan in report.plans.items() if plan.beside_pico is None)
    notes = (
        [f"Fees are not in the revenue of {', '.join(unknown)}: the period is no month in the plans' time zone."]
        if unknown
        else []
    )
    return Sheet("plans", "Margin by plan", columns, rows, notes)


def users_sheet(report: CostReport) -> Sheet:
    """Margins by end user, dearest first; end users are hashes of what clients say in `user`."""
    columns = (Column("tenant", _TEXT, "Tenant"), Column("end_user", _TEXT, "End user"), *_MARGIN_COLUMNS)
    ranked = sorted(report.users.items(), key=lambda user: (-user[1].busy_pico, user[0][0], user[0][1] or ""))
    rows = [(tenant, user or _NOBODY, *_margin_row(one)) for (tenant, user), one in ranked[:MOST_USERS]]
    notes = [f"and {len(ranked) - MOST_USERS:,} more"] if len(ranked) > MOST_USERS else []
    return Sheet("users", "Margin by end user", columns, rows, notes)


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Users of something, of whom the heaviest are looked at."""

    what: str
    of: str
    users: Mapping[str, Margin]


def heaviest_sheet(report: CostReport) -> Sheet:
    """The tenth of the tenants of each plan, and of the end users of each tenant, that cost most; and the others."""
    columns = (
        Column("of", _TEXT, "Of"),
        Column("who", _TEXT, "Who"),
        Column("count", _COUNT, "Number"),
        Column("cost_share", _SHARE, "Of the cost"),
        *_MARGIN_COLUMNS,
    )
    rows: list[Sequence[Value]] = []
    for crowd in _crowds(report):
        decile: Decile[str] | None = heaviest(crowd.users)
        if decile is None or not decile.others_count:
            continue
        share = decile.cost_share
        rows.append(
            (crowd.of, f"heaviest tenth of {crowd.what}", len(decile.keys), share, *_margin_row(decile.heaviest))
        )
        rest = None if share is None else 1 - share
        rows.append((crowd.of, f"other {crowd.what}", decile.others_count, rest, *_margin_row(decile.others)))
    return Sheet("heaviest", "The heaviest tenth, by cost", columns, rows, ["Flat plans lose on them."])


def _crowds(report: CostReport) -> Iterator[_Crowd]:
    tenants = report.by_tenant()
    yield _Crowd("tenants", ALL, tenants)
    for plan in sorted({_plan_of(report, tenant) for tenant in tenants}):
        of_plan = {tenant: one for tenant, one in tenants.items() if _plan_of(report, tenant) == plan}
        if len(of_plan) < len(tenants):
            yield _Crowd("tenants", plan, of_plan)
    users: dict[str, dict[str, Margin]] = {}
    for (tenant, end_user), one in report.users.items():
        if end_user is not None:
            users.setdefault(tenant, {})[end_user] = one
    for tenant in sorted(users):
        yield _Crowd("end users", tenant, dict(sorted(users[tenant].items())))


def _plan_of(report: CostReport, tenant: str) -> str:
    plan = report.plans.get(tenant)
    return "(none)" if plan is None else plan.plan_id


def discounts_sheet(report: CostReport) -> Sheet:
    """The discount given for cached tokens against the prefill that was avoided."""
    columns = (
        Column("tenant", _TEXT, "Tenant"),
        Column("model", _TEXT, "Model"),
        Column("cached_tokens", _COUNT, "Cached tokens"),
        Column("amount_given", _AMOUNT, "Discount given"),
        Column("avoided_s", _SECONDS, "Prefill avoided, s"),
        Column("amount_avoided_busy", _AMOUNT, "Avoided, busy"),
        Column("amount_avoided_loaded", _AMOUNT, "Avoided, loaded"),
        Column("worth", _TEXT, "The discount"),
    )
    rows = [
        (
            *(one.tenant_id, one.model, one.cached_tokens, one.given_pico, float(one.avoided_us) / _S_US),
            *(round(one.busy_pico), round(one.loaded_pico), one.worth.value),
        )
        for one in report.discounts
    ]
    notes = ["Of measured calls. Earns if sold: only where the GPU time that hits free is sold, or machines returned."]
    if any(one.worth is Worth.UNKNOWN for one in report.discounts):
        notes.append(
            "Unknown: where the tokens were cached, too little of the model was computed to say what they save."
        )
    return Sheet("discounts", "The cached price at this load", columns, rows, notes)


def fills_sheet(report: CostReport) -> Sheet:
    """In groups that share a cache: whose first fill was found cached by whom, and what it spared them."""
    columns = (
        Column("share_group", _TEXT, "Share group"),
        Column("model", _TEXT, "Model"),
        Column("filled_by", _TEXT, "Filled by"),
        Column("used_by", _TEXT, "Used by"),
        Column("tokens", _COUNT, "Tokens"),
        Column("amount_prefill", _AMOUNT, "Prefill, busy"),
    )
    found, cost_of = report.fills, prefill_pico_per_token(report.account)
    shared_groups = found.shared_groups
    lines: list[tuple[str, str, str, str, int]] = [
        (*filler, "(first fill)", tokens) for filler, tokens in found.first.items()
    ]
    lines += [(*filler, "(filled again)", tokens) for filler, tokens in found.again.items()]
    lines += [(use[0], use[1], use[2] or "(before)", use[3], tokens) for use, tokens in found.used.items()]
    rows = [
        (*line, round(line[4] * cost_of[line[1]]) if line[1] in cost_of else None)
        for line in sorted(lines)
        if line[0] in shared_groups
    ]
    notes = ["By chains, where the ledger keeps them (ledger.chain_tokens), in whole blocks of them."]
    if any(use.filled_by == BEFORE for use in found.used):
        notes.append("(before): cached when the period's first request for it came.")
    if found.unsaid:
        notes.append(f"Of {counted(found.unsaid, 'prompt')} the engine did not say what was cached: left out.")
    return Sheet("fills", "Who paid the first fill", columns, rows, notes)


def api_sheet(report: CostReport) -> Sheet:
    """What the traffic would have cost at APIs, and where own machines begin to be cheaper."""
    columns = (
        Column("api", _TEXT, "API"),
        Column("as_of", _TEXT, "Prices of"),
        Column("amount_api", _AMOUNT, "At the API"),
        Column("amount_own_busy", _AMOUNT, "Own, busy"),
        Column("amount_own", _AMOUNT, "Own, loaded"),
        Column("cheaper", _TEXT, "Cheaper now"),
        Column("per_mtok_api", _PER_MTOK, "API, per million"),
        Column("per_mtok_own", _PER_MTOK, "Own, per million"),
        Column("tokens_a_month", _COUNT, "Even at tokens a month"),
        Column("busy_share", _SHARE, "Even at busy"),
    )
    rows: list[Sequence[Value]] = []
    for one in report.break_evens:
        tokens, at, use = one.mix.tokens, one.tokens_a_month, one.utilisation
        per = (Fraction(one.api_pico, tokens), Fraction(one.own_pico, tokens)) if tokens else (None, None)
        rows.append(
            (
                *(one.price.name, one.price.as_of, one.api_pico, one.own_busy_pico, one.own_pico),
                *("own" if one.own_is_cheaper else "api", *per),
                *(None if at is None else round(at), None if use is None else float(use)),
            )
        )
    notes = ["At the measured mix, with the API's own cached price. Even at more than 100 % busy: never at this batch."]
    if report.other_currency_prices:
        notes.append(f"In another currency and left out: {counted(report.other_currency_prices, 'price')}.")
    return Sheet("api", "API or own machines", columns, rows, notes)


def jobs_sheet(jobs: Mapping[Job, Margin], *, with_cost: bool, most: int) -> Sheet:
    """The `most` runs of agents, dearest first: calls, tokens, hit share, price, and cost where there is an account."""
    cost_columns = (
        Column("amount_cost_busy", _AMOUNT, "Cost, busy"),
        Column("amount_cost_loaded", _AMOUNT, "Cost, loaded"),
        Column("amount_margin_loaded", _AMOUNT, "Margin, loaded"),
    )
    columns = (
        Column("tenant", _TEXT, "Tenant"),
        Column("job", _TEXT, "Job"),
        Column("first_call", _TEXT, "First call"),
        Column("span_s", _SECONDS, "To the last, s"),
        Column("calls", _COUNT, "Calls"),
        Column("prompt_tokens", _COUNT, "Prompt"),
        Column("cached_tokens", _COUNT, "Cached"),
        Column("hit_share", _SHARE, "Hit share"),
        Column("output_tokens", _COUNT, "Output"),
        Column("amount_price", _AMOUNT, "Price"),
        *(cost_columns if with_cost else ()),
        Column("notes", _TEXT, "Notes"),
    )
    ranked = sorted(jobs.items(), key=lambda job: (-job[1].busy_pico, -job[1].revenue_pico, job[0]))
    left_out = max(len(ranked) - most, 0)
    notes = [f"and {left_out:,} more"] if left_out else []
    return Sheet("jobs", "Jobs", columns, [_job_row(job, one, with_cost) for job, one in ranked[:most]], notes)


def _job_row(job: Job, one: Margin, with_cost: bool) -> Sequence[Value]:
    earned = one.earned
    first, span = None, None
    if earned.first_us is not None and earned.last_us is not None:
        first, span = from_us(earned.first_us).isoformat(timespec="seconds"), (earned.last_us - earned.first_us) / _S_US
    cost = (one.busy_pico, one.loaded_pico, one.loaded_margin_pico) if with_cost else ()
    return (
        *(*job, first, span, earned.requests, earned.prompt_tokens, earned.cached_tokens, earned.hit_share),
        *(earned.output_tokens, one.revenue_pico, *cost, _notes(one)),
    )


def _margin_row(one: Margin, unborne_pico: int = 0) -> Iterable[Value]:
    loaded = one.loaded_pico + unborne_pico
    left = one.revenue_pico - loaded
    yield from (one.earned.requests, one.revenue_pico, one.busy_pico, loaded, one.busy_margin_pico, left)
    yield from map(one.of_revenue, (one.busy_margin_pico, left, one.busy_pico, loaded))
    yield _notes(one)


def _notes(one: Margin) -> str:
    """What the figures do not hold, and what they hold otherwise, counted."""
    spent, earned = one.spent, one.earned
    uncounted = (
        (earned.unknown_amounts, "not in the revenue"),
        (earned.interrupted, "interrupted, of unknown cost"),
    )
    counts = (
        *((count, what, what) for count, what in uncounted),
        (spent.calls_without_rate, "call at no known rate", "calls at no known rate"),
        (spent.unmeasured_calls, "call not measured", "calls not measured"),
    )
    words = [counted(*one) for one in counts if one[0]]
    words += [f"more in {currency}" for currency in sorted(one.foreign_pico)]
    return ", ".join(words)
