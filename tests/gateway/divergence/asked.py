"""Requests and their plans, made without a server: four characters a token, and nothing around a message."""

from array import array
from datetime import UTC, datetime

from gateway.types import InferenceRequest, KeyId, Plan, RequestId, Route, Tenant, TenantId, TokenSource
from prefix_index import chain_of, pack
from prefix_index.prompt import PromptView

BLOCK = 16
CHARS = 4
"""A token."""


def request(
    system: str = "",
    *turns: str,
    tools: list[object] | None = None,
    tenant: str = "acme",
    model: str = "m",
    prompt: PromptView | None = None,
) -> InferenceRequest:
    """A chat whose turns alternate between user and assistant, or the prompt that is given."""
    roles = ("user", "assistant")
    messages: list[dict[str, object]] = [{"role": "system", "content": system}] if system else []
    messages += [{"role": roles[place % 2], "content": text} for place, text in enumerate(turns)]
    return InferenceRequest(
        id=RequestId("r"),
        tenant=Tenant(TenantId(tenant), KeyId(f"{tenant}-key"), tenant, "00"),
        route=Route.CHAT,
        path=Route.CHAT.value,
        model=model,
        stream=False,
        client_wants_usage=False,
        max_output_tokens=1,
        prompt=prompt or PromptView(messages=messages, tools=tools),
        body=b"{}",
        headers=(),
        started_s=0.0,
        opened_at=datetime.now(UTC),
    )


def plan(asked: InferenceRequest, root: bytes = b"root", text: str | None = None) -> Plan:
    """Its tokens: those of its tools, then of its messages."""
    prompt = asked.prompt
    if text is None:
        said = [str(message.get("content")) for message in prompt.messages or ()]
        text = "".join([said[0] if said else "", *map(str, prompt.tools or ()), *said[1:]])
    pieces = [text[at : at + CHARS] for at in range(0, len(text), CHARS)]
    ids = pack(array("I", [hash(piece) & 0xFFFFFFFF for piece in pieces]))
    return Plan(chain_of(ids, root, BLOCK), TokenSource.LOCAL, root=root)
