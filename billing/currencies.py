"""Currencies and their minor units: how many decimal places an amount on an invoice has.

Facts: ISO 4217 list one (currencies and funds, SIX), as published on 2026-01-01. Metals, baskets and codes for tests
have no minor unit there and are not in the table: nothing is invoiced in them.
"""

from typing import Final

from billing.money import PICO

ISO_4217_PUBLISHED: Final = "2026-01-01"

_CODES_BY_PLACES: Final = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY"
    " COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS"
    " INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR"
    " MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP"
    " STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}

MINOR_UNIT_PLACES: Final = {code: places for places, codes in _CODES_BY_PLACES.items() for code in codes.split()}
"""Decimal places of the minor unit by currency code: 2 for USD, 0 for JPY, 3 for KWD."""


def minor_unit_pico(currency: str) -> int:
    """The smallest amount of a currency that can be paid, in pico-units: 10^10 for USD. Raises `KeyError`."""
    return int(PICO // 10 ** MINOR_UNIT_PLACES[currency])
