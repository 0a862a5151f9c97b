"""The same findings out of the ledger: its rows say in what each prompt changed, and what that lost."""

from collections.abc import Iterable

from billing.verification.losses import Loss
from gateway.divergence.findings import LiveFinding, merged, rule_of, worth_telling
from gateway.divergence.types import Change, read_segment

_US = 1_000_000


def findings_in(losses: Iterable[Loss], until_s: float) -> list[LiveFinding]:
    """Findings of a period that ends at `until_s`, in seconds since 1970; dearest first."""
    return worth_telling(
        merged(_finding(loss, loss.changed_segment, until_s) for loss in losses if loss.changed_segment)
    )


def _finding(loss: Loss, text: str, until_s: float) -> LiveFinding:
    change, segment, cause = read_segment(text)
    is_part = change in (Change.SYSTEM, Change.MESSAGE, Change.PROMPT)
    return LiveFinding(
        *(rule_of(change, cause), loss.tenant_id, loss.model, loss.route, segment, cause),
        requests=loss.requests,
        of=loss.of,
        lost_tokens=loss.lost_tokens,
        first_s=loss.first_us / _US,
        last_s=loss.last_us / _US,
        until_s=until_s,
        causes={cause: loss.requests} if cause is not None and is_part else {},
    )
