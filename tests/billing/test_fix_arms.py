"""Both sides of a comparison of fixes, out of the ledger."""

from datetime import timedelta

from msgspec.structs import replace

from billing import SettlementState, Usage, open_ledger
from billing.reports.fix_arms import FixArm, fix_arms
from billing.reports.query import About, Query
from billing.reports.reading import one_view
from tests.billing.conftest import Where
from tests.billing.samples import NOON, book, opened, settled

ALL = Query(NOON - timedelta(days=1), NOON + timedelta(days=1))


async def test_both_sides_stand_beside_each_other_by_tenant(where: Where) -> None:
    rows = [
        ("acme", "on:tools", Usage(1000, 900, 10)),
        ("acme", "on:tools", Usage(1000, 700, 20)),
        ("acme", "off:tools", Usage(1000, 0, 30)),
        ("acme", None, Usage(1000, 500, 5)),
        ("acme", "on:tools", Usage(1000, None, 5)),
        ("acme", "off:tools", Usage(1000, 0, None)),
        ("beta", "on:lines+tools", Usage(100, 90, 1)),
    ]
    async with open_ledger(where, book()) as ledger:
        for number, (tenant, fixes, usage) in enumerate(rows):
            await ledger.open(opened(f"r{number}", tenant=tenant))
            await ledger.settle(replace(settled(f"r{number}", usage), layout_fixes=fixes))
        await ledger.open(opened("failed"))
        await ledger.settle(replace(settled("failed", state=SettlementState.FAILED), layout_fixes="on:tools"))
    with one_view(where) as connection:
        found = list(fix_arms(connection, ALL))
        of_beta = list(fix_arms(connection, Query(ALL.start, ALL.end, about=About(tenant="beta", model="llama"))))
    assert found == [
        FixArm("acme", "tools", "off", 2, 2000, 0, 1, 30, 0.05),
        FixArm("acme", "tools", "on", 2, 2000, 1600, 2, 30, 0.05),
        FixArm("beta", "lines+tools", "on", 1, 100, 90, 1, 1, 0.05),
    ]
    assert of_beta == found[2:]
