"""Waiting before dispatch: while all endpoints that may serve a request are full, it waits here, in a fair order."""

from gateway.queueing.order import Order, OrderRules
from gateway.queueing.types import ClassRule, Fit, Pick, Ticket, WaitShed, Went

__all__ = ["ClassRule", "Fit", "Order", "OrderRules", "Pick", "Ticket", "WaitShed", "Went"]
