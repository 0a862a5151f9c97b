"""What a client may say to an engine only through us, and what it says that changes the engine's reading of a prompt.

    denied      steers an engine's cache, scheduler or placement: taken out of the request (the exception to byte
                fidelity), headers likewise
    altering    passes, but the engine then reads other tokens than the messages say: no affinity for this request
    adapters    passes, and is part of the root: a prefix under one adapter is nothing under another

Sources: the request models of vLLM 0.32, SGLang 0.5.23, TensorRT-LLM 1.4, llama.cpp 11434.
"""

ENGINE_CONTROL_FIELDS = frozenset(
    {
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "cache_prompt",
        "cache_salt",
        "conversation_params",
        "custom_logit_processor",
        "data_parallel_rank",
        "disagg_prefill_dp_rank",
        "disaggregated_params",
        "ec_transfer_params",
        "extra_key",
        "id_slot",
        "kv_transfer_params",
        "n_cache_reuse",
        "priority",
        "request_id",
        "rid",
        "routed_dp_rank",
        "session_params",
        "slot_id",
        "vllm_xargs",
    }
)
"""Body fields that are the gateway's to set, or nobody's: cache salts and namespaces, hand-off between engines, ranks
and slots, priorities, ids, and code to run inside the engine (`custom_logit_processor`)."""

ENGINE_CONTROL_HEADERS = frozenset(
    {
        b"endpoint-load-metrics-format",
        b"x-correlation-id",
        b"x-data-parallel-rank",
        b"x-prefiller-host-port",
        b"x-request-id",
        b"x-session-id",
        b"x-smg-routing-key",
        b"x-vllm-priority",
    }
)
"""Header fields, in lower case, by which an engine would take over priority, rank, id or stickiness from a client."""

ENGINE_CONTROL_HEADER_PREFIXES = (b"x-override-", b"x-prefixgate-")
"""How further such header fields begin, and those that are said to us."""

ALTERING_FIELDS = (
    "chat_template",
    "input_ids",
    "media_io_kwargs",
    "mm_processor_kwargs",
    "prompt_embeds",
    "prompt_logprobs",
    "prompt_token_ids",
    "truncate_prompt_tokens",
)
"""Body fields after which the tokens are not those of the messages, or are not looked up in the cache:
`prompt_logprobs` leaves the tokens as they are, but makes engines read nothing from their cache."""

ADAPTER_FIELDS = ("adapter_id", "lora", "lora_path", "lora_request")
"""Body fields that name an adapter beside the model, in the spelling of one engine or another."""


def is_control_header(name: bytes) -> bool:
    """Whether a header (name in lower case) steers an engine."""
    return name in ENGINE_CONTROL_HEADERS or name.startswith(ENGINE_CONTROL_HEADER_PREFIXES)
