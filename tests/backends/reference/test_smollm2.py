"""The converted SmolLM2 makes sense, and a warm prefix makes its first token come sooner."""

import httpx
import torch

from backends.reference.embedded import run_engine
from backends.reference.types import EngineConfig

STORY = " ".join(f"Rule {i}: answer politely, cite shelf number {7 * i} and never guess." for i in range(1, 16))


def test_the_real_model_answers_sensibly_and_reuses_its_prefix() -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    body: dict[str, object] = {"model": "smollm2", "messages": messages, "max_tokens": 12, "temperature": 0}
    with (
        run_engine(EngineConfig(model="smollm2", kv_blocks=64, threads=torch.get_num_threads())) as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        answer = client.post("/v1/chat/completions", json=body).json()["choices"][0]
        assert answer["message"]["content"] == "The capital of France is Paris."
        assert answer["finish_reason"] == "stop"

        # The template's default system prompt comes from the model file itself.
        tokens = client.post("/tokenize", json={"messages": [{"role": "user", "content": "Hello 123"}]}).json()
        assert tokens["tokens"][:6] == [1, 9690, 198, 2683, 359, 253]
        assert tokens["count"] == 35

        def first_token_seconds(question: str) -> tuple[float, int]:
            asked = [{"role": "system", "content": STORY}, {"role": "user", "content": question}]
            reply = client.post("/v1/chat/completions", json=body | {"messages": asked, "max_tokens": 1})
            details = reply.json()["usage"]["prompt_tokens_details"]
            return reply.elapsed.total_seconds(), details["cached_tokens"]

        cold_s, cold_cached = first_token_seconds("Where are the books on gravity?")
        warm_s, warm_cached = first_token_seconds("Where are the books on light?")
        assert cold_cached == 0
        assert warm_cached >= 256
        # Ten times fewer tokens; a third leaves room for a busy machine.
        assert warm_s < cold_s / 3
