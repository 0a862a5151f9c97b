"""What a token is sold for: prices by model, tenant and time, and the plans of a month.

    prices file --file, fields--> PriceFile --book--> PriceBook --quote--> Price --pricing--> Charge, in pico-units
    plans file --plans_file----> Plans     --plans--> Statement: fee, included tokens, overage, minimum

pricing         one price, and what tokens cost by it           tiers           what volume tiers make of a month
live            the book in force, read anew when its file changes
view, advice    the book for people, and what looks wrong in it
public_apis     prices of public APIs, as dated data (api_prices.yaml)
"""

__all__: list[str] = []
