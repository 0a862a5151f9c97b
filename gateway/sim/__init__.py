"""The second composition root: the server's index, scheduling and billing under a virtual clock, over traces."""

from gateway.sim.types import EndpointView, Policy, SimRequest, View, Workload

__all__ = ["EndpointView", "Policy", "SimRequest", "View", "Workload"]
