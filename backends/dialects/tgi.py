"""Hugging Face's text-generation-inference (3.3, in maintenance).

It never reports cached tokens, so its hits are unknown, not 0. In `/v1/models` it owns its models under their own
name, so it is told by its metrics' prefix. Its block size depends on a backend it does not name. Its routes are the
same in all versions; `/generate` stays shut, since its answers carry no usage to bill.
"""

from backends.dialects.metrics import total, whole_number
from backends.dialects.types import CacheShape, Dialect, Info, MetricNames, Samples, counter
from backends.features import Feature
from backends.types import Metering, TokenizeForm

_MAX_TOKENS = "tgi_batch_max_total_tokens"


def _shape(samples: Samples, info: Info) -> CacheShape:
    return CacheShape(capacity_tokens=whole_number(total(samples, (_MAX_TOKENS,))))


TGI = Dialect(
    name="tgi",
    metric_prefix="tgi_",
    signature=("/info", "max_concurrent_requests"),
    metrics=MetricNames(
        running=("tgi_batch_current_size",),
        waiting=("tgi_queue_size",),
        steps=(
            "tgi_batch_inference_duration_count",
            "tgi_batch_forward_duration_count",
            "tgi_request_generated_tokens_sum",
        ),
        finished=(*counter("tgi_request_count"), *counter("tgi_request_success")),
        also=(_MAX_TOKENS,),
    ),
    health_paths=("/health",),
    info_paths=("/info",),
    shape=_shape,
    reports_cached_tokens=False,
    flags={Feature.METRICS: "", Feature.PREFIX_CACHING: "PREFIX_CACHING=1", Feature.LORA: "--lora-adapters"},
    tokenize=TokenizeForm.INPUTS,
    max_model_len_info_key=("max_total_tokens",),
    uncertain_routes=(),
    open_paths={"POST /tokenize": Metering.FREE, "POST /chat_tokenize": Metering.FREE},
)
