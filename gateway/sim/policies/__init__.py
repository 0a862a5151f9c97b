"""The routers that others run, as policies of the simulator, each by its published rule and defaults."""

from collections.abc import Callable, Mapping

from gateway.sim.policies.least_requests import least_requests
from gateway.sim.policies.least_work import least_work
from gateway.sim.policies.longest_prefix import longest_prefix
from gateway.sim.policies.parts import PolicyArgs
from gateway.sim.policies.random_choice import random_choice
from gateway.sim.policies.round_robin import round_robin
from gateway.sim.policies.sticky import sticky
from gateway.sim.types import Policy

__all__ = ["PolicyArgs", "by_name"]

by_name: Mapping[str, Callable[[PolicyArgs], Policy]] = {
    "random": random_choice,
    "rr": round_robin,
    "least-req": least_requests,
    "sticky": sticky,
    "longest": longest_prefix,
    "least-work": least_work,
}
"""Every policy, by the name that tables give it."""
