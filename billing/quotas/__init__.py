"""Limits and budgets: requests and tokens a minute, requests at once, money a day or month, for keys and tenants.

    Ask --reserve--> Granted | Refused ... --settle--> what it did use            (reserving)

redis_counters  shared by all replicas, in Redis functions (quota.lua)
counters        the same in this process: for one replica alone, and while Redis is away
spending        what a request may cost, what it did, and what the ledger says was spent
periods         days and months by the clocks of a time zone                      types    the nouns
"""

__all__: list[str] = []
