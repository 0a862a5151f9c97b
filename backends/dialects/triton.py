"""Triton Inference Server with its OpenAI-compatible front end and the TensorRT-LLM backend.

Sources: the front end of 25.x, the metrics of the backend. Load and cache stand as labels of a few families
(`nv_trt_llm_*`), which another backend behind the same front end does not have; its own counter of requests
(`nv_inference_request_success`) shows restarts. `/health/ready` answers 400 while it is not. Whether its usage ever
holds cached tokens is not known. What the front end does to models (loading, unloading) stays shut, and so do the ports
of Triton's own protocols, which the gateway is not told.
"""

from backends.dialects.metrics import paged
from backends.dialects.types import EMBEDDINGS, CacheShape, Dialect, Info, MetricNames, Samples, Series
from backends.features import Feature

_REQUESTS = "nv_trt_llm_request_metrics"
_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_SCHEDULED, _WAITING, _USE = "requests scheduled", "requests waiting", "share of blocks"


def _labelled(samples: Samples, name: str, label: str, value: str) -> list[Series]:
    return [series for series in samples.get(name, ()) if series[0].get(label) == value]


def _prepare(samples: Samples) -> Samples:
    """Each kind of request, and the share of blocks, as a series of its own."""
    return {
        **samples,
        _SCHEDULED: _labelled(samples, _REQUESTS, "request_type", "scheduled"),
        _WAITING: _labelled(samples, _REQUESTS, "request_type", "waiting"),
        _USE: _labelled(samples, _BLOCKS, "kv_cache_block_type", "fraction"),
    }


def _shape(samples: Samples, info: Info) -> CacheShape:
    return paged(
        _labelled(samples, _BLOCKS, "kv_cache_block_type", "tokens_per"),
        _labelled(samples, _BLOCKS, "kv_cache_block_type", "max"),
    )


TRITON = Dialect(
    name="triton",
    owned_by=frozenset({"Triton Inference Server"}),
    metric_prefix="nv_trt_llm_",
    metrics=MetricNames(
        running=(_SCHEDULED,),
        waiting=(_WAITING,),
        kv_use=(_USE,),
        finished=("nv_inference_request_success",),
        also=(_REQUESTS, _BLOCKS),
    ),
    health_paths=("/health/ready",),
    prepare=_prepare,
    shape=_shape,
    flags={
        Feature.CACHED_TOKENS: "",
        Feature.METRICS: "--allow-metrics=true",
        Feature.PREFIX_CACHING: "enable_kv_cache_reuse in the model's config.pbtxt",
    },
    uncertain_routes=(EMBEDDINGS,),
)
