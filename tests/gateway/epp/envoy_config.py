"""A configuration of Envoy that asks the endpoint picker: what docs/epp.md shows, with ports of the moment."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_TYPES: Final = "type.googleapis.com"


@dataclass(frozen=True, slots=True)
class Plan:
    """`picker` is the port of gRPC. `modes` are those of request and response bodies."""

    picker: int
    engines: Sequence[tuple[str, int]]
    port: int
    admin_port: int
    request_body: str = "FULL_DUPLEX_STREAMED"
    response_body: str = "FULL_DUPLEX_STREAMED"
    retries: int = 0
    tls: bool = True
    response_headers: str = "SEND"
    original_destination: bool = False
    """The cluster has no endpoints of its own, and goes where the header says."""


def config_of(plan: Plan) -> str:
    """The whole of it, JSON, which is YAML."""
    return json.dumps(
        {
            "admin": {"address": _address("127.0.0.1", plan.admin_port)},
            "static_resources": {"listeners": [_listener(plan)], "clusters": [_engines(plan), _picker(plan)]},
        }
    )


def _listener(plan: Plan) -> dict[str, object]:
    route: dict[str, object] = {"cluster": "engines", "timeout": "0s"}
    if plan.retries:
        route["retry_policy"] = {"retry_on": "connect-failure,reset-before-request", "num_retries": plan.retries}
    trailers = "SEND" if plan.response_body == "FULL_DUPLEX_STREAMED" else "SKIP"
    asked = "SEND" if plan.request_body == "FULL_DUPLEX_STREAMED" else "SKIP"
    manager = {
        "@type": f"{_TYPES}/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.ext_proc",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
                    "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}, "timeout": "0s"},
                    "message_timeout": "600s",
                    "response_attributes": ["upstream.address", "response.code_details"],
                    "processing_mode": {
                        "request_header_mode": "SEND",
                        "request_body_mode": plan.request_body,
                        "request_trailer_mode": asked,
                        "response_header_mode": plan.response_headers,
                        "response_body_mode": plan.response_body,
                        "response_trailer_mode": trailers,
                    },
                    "metadata_options": {
                        "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
                        "receiving_namespaces": {"untyped": ["envoy.lb"]},
                    },
                },
            },
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            },
        ],
    }
    filters = [{"name": "http", "typed_config": manager}]
    return {"name": "in", "address": _address("127.0.0.1", plan.port), "filter_chains": [{"filters": filters}]}


def _engines(plan: Plan) -> dict[str, object]:
    if plan.original_destination:
        return {
            "name": "engines",
            "type": "ORIGINAL_DST",
            "connect_timeout": "2s",
            "lb_policy": "CLUSTER_PROVIDED",
            "original_dst_lb_config": {"use_http_header": True, "http_header_name": "x-gateway-destination-endpoint"},
        }
    override = {
        "@type": f"{_TYPES}/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [
            {"metadata": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}},
            {"header": "x-gateway-destination-endpoint"},
        ],
        "fallback_policy": {
            "policies": [
                {
                    "typed_extension_config": {
                        "name": "round_robin",
                        "typed_config": {
                            "@type": f"{_TYPES}/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"
                        },
                    }
                }
            ]
        },
    }
    return {
        "name": "engines",
        "type": "STATIC",
        "connect_timeout": "2s",
        "load_balancing_policy": {
            "policies": [{"typed_extension_config": {"name": "override_host", "typed_config": override}}]
        },
        "load_assignment": {
            "cluster_name": "engines",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(*one)}} for one in plan.engines]}],
        },
    }


def _picker(plan: Plan) -> dict[str, object]:
    tls = {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {"alpn_protocols": ["h2"]},
        },
    }
    options = {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
    return {
        "name": "picker",
        "type": "STATIC",
        "connect_timeout": "5s",
        "typed_extension_protocol_options": options,
        **({"transport_socket": tls} if plan.tls else {}),
        "load_assignment": {
            "cluster_name": "picker",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address("127.0.0.1", plan.picker)}}]}],
        },
    }


def _address(host: str, port: int) -> dict[str, object]:
    return {"socket_address": {"address": host, "port_value": port}}
