"""Errors of billing.

BillingError
|- LedgerUnavailable    the ledger cannot be opened, written or read
|  `- RowRefused        the ledger works, but this row cannot be taken
|- PricesInvalid        the price file is missing or contradicts itself
|- CostsInvalid         the costs file is missing or contradicts itself
|- YamlInvalid          a text is no YAML, or has a key twice
|- PeriodInvalid        a date or a period that cannot be read
|- ReportInvalid        a report of a kind that there is not
`- ReportTooSlow        reading took longer than it may
"""


class BillingError(Exception):
    """Base of all errors of this room."""


class LedgerUnavailable(BillingError):
    """The ledger cannot do its work; `why` says what is in the way and what would help."""

    def __init__(self, why: str) -> None:
        super().__init__(f"usage ledger unavailable: {why}")
        self.why = why


class RowRefused(LedgerUnavailable):
    """One row contradicts the ledger or cannot be stored; the others are not touched by it."""

    def __init__(self, request_id: str, why: str) -> None:
        super().__init__(f"row of request {request_id} refused: {why}")
        self.request_id = request_id


class PricesInvalid(BillingError):
    """The price file cannot be used; `where` names the file or the price, `why` what would help."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"prices, {where}: {why}")
        self.where = where
        self.why = why


class CostsInvalid(BillingError):
    """The costs file cannot be used; `where` names the file or the endpoint, `why` what would help."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"costs, {where}: {why}")
        self.where = where
        self.why = why


class YamlInvalid(BillingError):
    """A text that is no YAML, or has a key twice; the readers of files put the file's name before it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"is no YAML that can be read: {why}")
        self.why = why


class PeriodInvalid(BillingError):
    """A time or a period that cannot be read; `text` is what was given, empty where nothing was."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"{text!r}: {why}" if text else why)
        self.text = text
        self.why = why


class ReportInvalid(BillingError):
    """A report that cannot be made as it was asked for; `text` is what was given."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"{text!r}: {why}")
        self.text = text
        self.why = why


class ReportTooSlow(BillingError):
    """Reading took longer than `deadline_s`; a shorter period, or one that needs no rows, takes less."""

    def __init__(self, deadline_s: float) -> None:
        super().__init__(f"the report was not done within {deadline_s:g} s: ask for a shorter period")
        self.deadline_s = deadline_s
