"""The configuration as the options of what serves."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from backends import Deadlines, EndpointConfig, EndpointId, KnownAdapter, PerfModel
from backends.hardware import USUAL_MODEL, expected_speed
from gateway.adapter_config import Adapter
from gateway.adapters import UNLISTING
from gateway.config import Backend, Config, Scheduling, backend_key, salt_secrets
from gateway.edge.auth import Authenticator, load_keys, open_to_all
from gateway.fleet import FleetOptions
from gateway.hourly_costs import HourlyCosts
from gateway.limits_parts import needs_salt
from gateway.pipeline_parts import PipelineOptions
from gateway.scheduling import Chooser, Thrift, chooser_of, observing
from gateway.timing import TimingHeader


def authenticator_of(config: Config) -> Authenticator:
    """Who may call, from the keys file or open to all. Raises `KeysFileInvalid` or `ConfigInvalid`."""
    secret = salt_secrets(config).at(time.time())
    if config.keys_file is None:
        return open_to_all(secret)
    return load_keys(config.keys_file, secret, config.quota.cached_token_weight)


def endpoint_of(backend: Backend, environment: Mapping[str, str], adapters: Sequence[Adapter] = ()) -> EndpointConfig:
    """Where a configured backend is, and which of `adapters` it has. Raises `ConfigInvalid` or `InvalidEndpoint`."""
    return EndpointConfig(
        id=EndpointId(backend.name),
        url=backend.url,
        api_key=backend_key(backend, environment),
        ca_file=backend.ca_file,
        cert_file=backend.cert_file,
        key_file=backend.key_file,
        server_name=backend.server_name,
        adapters=tuple(
            KnownAdapter(one.name, one.model, UNLISTING if one.backends is None else None)
            for one in adapters
            if one.backends is None or backend.name in one.backends
        ),
    )


def prior_of(backend: Backend, prior: Scheduling) -> PerfModel:
    """How fast an endpoint is believed to be until something is measured: as its GPUs, where they are named, else as
    all; with its own rate before either."""
    if backend.gpu is not None:
        speed = expected_speed(backend.gpu, backend.gpus, backend.gpu_model or USUAL_MODEL)
    else:
        speed = PerfModel(prior.base_s, prior.prefill_tokens_per_s, prior.quad_s_per_token2, prior.itl_s)
    rate = backend.prefill_tokens_per_s
    return speed if rate is None else replace(speed, prefill_tokens_per_s=rate)


def fleet_options(config: Config, authenticator: Authenticator) -> FleetOptions:
    """What is known of the endpoints before they are asked."""
    return FleetOptions(
        speeds={EndpointId(backend.name): prior_of(backend, config.scheduling) for backend in config.backends},
        block_size=config.index.block_size,
        capacity_blocks=config.index.capacity_blocks,
        needs_salt=needs_salt(config, authenticator),
        slow_start_s=config.discovery.slow_start_s,
        ranks={backend.name: backend.kv_events.ranks for backend in config.backends},
        ranks_left={backend.name for backend in config.backends if not backend.choose_rank},
    )


def pipeline_options(config: Config, wall: Callable[[], datetime]) -> PipelineOptions:
    """What holds for every request. Raises `CostsInvalid` where decisions go by what endpoints cost."""
    costs = HourlyCosts(config.costs_file if config.scheduling.cheaper_within_s else None, wall)
    limits = config.limits
    return PipelineOptions(
        deadlines=Deadlines(connect_s=limits.connect_s, first_byte_s=limits.first_byte_s, idle_s=limits.idle_s),
        choose=chooser_for(config.scheduling, costs),
        inject_salt=config.isolation == "salt",
        chain_tokens=config.ledger.chain_tokens,
        timing=TimingHeader(config.timing.header, coarse=config.keys_file is not None),
        costs=costs,
        continuations=config.continuation.at_most if config.continuation.enabled else 0,
    )


def chooser_for(scheduling: Scheduling, costs: HourlyCosts) -> Chooser:
    """The configured policy, or another that routes while it is only watched."""
    within_s = scheduling.cheaper_within_s
    thrift = Thrift(costs.per_hour, within_s) if within_s else None
    chooser = chooser_of(scheduling.policy, scheduling.near_tie_s, thrift)
    if scheduling.observe is None:
        return chooser
    return observing(chooser_of(scheduling.observe, scheduling.near_tie_s), chooser)
