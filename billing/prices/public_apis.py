"""Prices of public APIs, shipped as dated data to compare with: what the same tokens would have cost elsewhere.

`billing/prices/api_prices.yaml` says of each which page it goes back to, the month of the collection it was taken from,
and which that is. Nothing is fetched, and nobody is billed by it.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from billing.prices.fields import Fields, keyed, listed, read_yaml, text_of
from billing.prices.file import PRICE_KEYS, read_price
from billing.prices.pricing import Price
from billing.prices.view import price_view

API_PRICES_FILE = Path(__file__).with_name("api_prices.yaml")
CURRENCY = "USD"
API_KEYS = (PRICE_KEYS - {"id", "tenant", "currency", "volume_tiers"}) | {"api", "as_of", "source", "note"}

_FILE_KEYS = frozenset({"prices"})
_SINCE_UNKNOWN = "1970-01-01"


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """A price of a public API. `as_of` is the month of the data, `source` the provider's page; `note` what else holds.

    `price.model` is `api/model`. Where it is not known since when it holds, `price.valid_from` is 1970.
    """

    api: str
    model: str
    as_of: str
    source: str
    note: str | None
    price: Price

    def view(self) -> dict[str, object]:
        """Ready for JSON, amounts per million tokens as exact text."""
        about = {"api": self.api, "as_of": self.as_of, "source": self.source, "note": self.note}
        shown = price_view(self.price)
        if self.price.valid_from.year == 1970:
            shown["from"] = None
        return {**about, **shown, "model": self.model}


@cache
def api_prices(path: Path = API_PRICES_FILE) -> tuple[ApiPrice, ...]:
    """All of them, in the order of the file. Raises `PricesInvalid`."""
    where = str(path.name)
    file = keyed(read_yaml(text_of(path), where), where, _FILE_KEYS)
    return tuple(
        _api_price(entry, f"{where}, price {number}")
        for number, entry in enumerate(listed(file.get("prices"), where, "prices"), 1)
    )


def _api_price(entry: object, where: str) -> ApiPrice:
    fields = Fields(entry, where, API_KEYS)
    api, model = fields.text("api"), fields.text("model")
    rates = {key: value for key in PRICE_KEYS if (value := fields.raw(key)) is not None}
    rates |= {"model": f"{api}/{model}", "from": fields.raw("from") or _SINCE_UNKNOWN}
    return ApiPrice(
        api=api,
        model=model,
        as_of=fields.text("as_of"),
        source=fields.text("source"),
        note=fields.optional_text("note"),
        price=read_price(Fields(rates, where, PRICE_KEYS), CURRENCY, Fields({}, where, frozenset())),
    )
