"""The routers that others run, as policies of the simulator, each by its published rule and defaults.

random, rr, least-req                no idea of prompts: dice, in turn, fewest requests         (one file each)
sticky                               by session
chwbl, chwbl-session                 consistent hash with bounded loads, KubeAI                 (chwbl)
smg                                  gate on requests, then the last holder, SMG and kin        (smg_cache_aware)
llmd-classic, llmd-precise           weighted scores, llm-d                                     (llmd_classic)
llmd-sticky, llmd-sticky-precise     sticky until saturated, llm-d                              (llmd_sticky)
dynamo                               cost in blocks, NVIDIA Dynamo
preble                               exploit or explore, Preble                                 (preble_e2)
longest                              greedy affinity, as a warning                              (longest_prefix)
least-work                           fewest prompt tokens, the control                          (least_work)

What they share: parts, outstanding, prefixes, last_holders, active_blocks.
"""

from collections.abc import Callable, Mapping

from gateway.sim.policies.chwbl import chwbl, chwbl_session
from gateway.sim.policies.dynamo import dynamo
from gateway.sim.policies.least_requests import least_requests
from gateway.sim.policies.least_work import least_work
from gateway.sim.policies.llmd_classic import llmd_classic, llmd_precise
from gateway.sim.policies.llmd_sticky import llmd_sticky, llmd_sticky_precise
from gateway.sim.policies.longest_prefix import longest_prefix
from gateway.sim.policies.parts import PolicyArgs
from gateway.sim.policies.preble_e2 import preble_e2
from gateway.sim.policies.random_choice import random_choice
from gateway.sim.policies.round_robin import round_robin
from gateway.sim.policies.smg_cache_aware import smg_cache_aware
from gateway.sim.policies.sticky import sticky
from gateway.sim.types import Policy

__all__ = ["PolicyArgs", "by_name"]

by_name: Mapping[str, Callable[[PolicyArgs], Policy]] = {
    "random": random_choice,
    "rr": round_robin,
    "least-req": least_requests,
    "sticky": sticky,
    "chwbl": chwbl,
    "chwbl-session": chwbl_session,
    "smg": smg_cache_aware,
    "llmd-classic": llmd_classic,
    "llmd-precise": llmd_precise,
    "llmd-sticky": llmd_sticky,
    "llmd-sticky-precise": llmd_sticky_precise,
    "dynamo": dynamo,
    "preble": preble_e2,
    "longest": longest_prefix,
    "least-work": least_work,
}
"""Every policy, by the name that tables give it."""
