"""The objects of a gateway, made of its configuration and of each other, in the order in which they need one another.

    setting --> opened      what holds something open: ledger, tracer, Redis, connections to engines
                followed    the fleet, and what is learned of it: speeds, health, KV events, receipts, misses
                served      what answers requests: planner, turns, pipeline, settler
                shown       pages, for operators and tenants      --> Edge, the ASGI application
                works       what runs beside requests

`gateway/app.py` has the order in which they run and end.
"""

from gateway.composition.composing import Composed, composed
from gateway.composition.types import Setting, Work

__all__ = ["Composed", "Setting", "Work", "composed"]
