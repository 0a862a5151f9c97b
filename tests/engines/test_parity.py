"""Our token ids are the engine's: one by one where it shows them, by their number wherever it counts them.

a chat    ──> ours                       == /tokenize (vLLM), /apply-template + /tokenize (llama.cpp)
a request ──> gateway ──> engine ──usage──> gateway: its own count == the engine's
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import zip_longest

import httpx
import pytest

from gateway.edge.reading import Arrival, read_request
from gateway.errors import BadRequest
from gateway.types import KeyId, RequestId, Route, Tenant, TenantId
from prefix_index import TemplateFailed, UnsupportedContent
from prefix_index.prompt import ModelText, PromptView, load_model_text
from prefix_index.token_bytes import unpack
from tests.engines.conftest import Front
from tests.engines.corpora import CHAT, DIALECTS, MESSAGES, RESPONSES, Body, in_dialect, one_token
from tests.engines.figures import Figures
from tests.engines.servers import EngineServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

AT_ONCE = 8
TENANT = Tenant(TenantId("t"), KeyId("k"), "t", "00")
TINY = pytest.mark.parametrize("engine", [("vllm", "tiny"), ("llamacpp", "tiny")], indirect=True, ids="-".join)

NOT_KNOWN_HERE = {
    "edge-completions-list",  # several prompts in one request
    "edge-completions-token-batch",
    "hard-c-mixed",  # llama.cpp: ids and texts make one prompt
    "hard-template",  # llama.cpp: rendered with the request's own template
    "hard-truncate",  # vLLM: only the end of the prompt is read
    "edge-responses-prev",
}
"""Requests whose prompt is not what their text says, or several: no count of ours is held against the engine's."""

REFUSED_BY_THE_GATEWAY_ALONE: dict[tuple[str, str], set[str]] = {
    ("llamacpp", CHAT): {"edge-model-number"},  # it never looks at the model
    ("llamacpp", MESSAGES): {"edge-model-number@messages"},
    ("llamacpp", RESPONSES): {
        "edge-model-number@responses",
        *("openapi-011", "openapi-012"),  # tools of OpenAI's own, which no chat can say and llama.cpp leaves out
    },
}
"""Requests that an engine takes and the gateway refuses, by engine and route: these and no others."""

NOT_RENDERED_HERE = {
    "llamacpp": {"edge-model-number", "hard-template", "hard-truncate"},  # it does not know `truncate_prompt_tokens`
    "vllm": {"hard-truncate", *("edge-big-int", "edge-nan")},  # `/tokenize` never sees the fields that make them none
}
"""Chats that an engine renders and we do not, by engine: these and no others."""


def ours(text: ModelText, body: Body) -> list[int] | None:
    """The token ids of a request as the gateway computes them; None where it says that it cannot know them."""
    arrival = Arrival(RequestId("r"), TENANT, Route(body.path), body.path, (), 0.0, datetime.now(UTC))
    try:
        request = read_request(arrival, body.raw)
        rendered = text.prompt_of(request.prompt)
    except (BadRequest, TemplateFailed, UnsupportedContent):
        return None
    if request.blind is not None or not rendered.exact:
        return None
    return _ids(text, request.prompt)


def _ids(text: ModelText, prompt: PromptView) -> list[int]:
    encoding = text.begin(prompt)
    encoding.compute()
    return list(unpack(encoding.finish()))


def theirs(engine: EngineServer, http: httpx.Client, body: Body) -> list[int] | None:
    """The token ids of a chat as the engine shows them; None where it refuses the chat."""
    if engine.engine == "vllm":
        answer = http.post("/tokenize", content=body.raw)
    else:
        answer = http.post("/apply-template", content=body.raw)
        if answer.status_code == httpx.codes.OK:
            said = {"content": answer.json()["prompt"], "add_special": True, "parse_special": True}
            answer = http.post("/tokenize", json=said)
    if answer.status_code != httpx.codes.OK:
        return None
    tokens: list[int] = answer.json()["tokens"]
    return tokens


@TINY
def test_every_chat_has_the_token_ids_that_the_engine_shows(engine: EngineServer, figures: Figures) -> None:
    text = load_model_text(engine.tokenizer, engine.chat_template).for_engine(engine.engine)
    compared, different, refused, not_rendered = 0, {}, 0, set()
    with httpx.Client(base_url=engine.url, timeout=600, headers={"content-type": "application/json"}) as http:
        for body in in_dialect(CHAT):
            here, there = ours(text, body), theirs(engine, http, body)
            if there is None:
                refused += 1
            elif here is None:
                not_rendered.add(body.name)
            else:
                compared += 1
                if here != there:
                    different[body.name] = _first_difference(here, there)
    figures.add_share(
        engine.engine,
        "chats whose token ids are the engine's, one by one",
        compared - len(different),
        compared,
        least=1.0,
        more=f"{refused} refused by it, {len(not_rendered)} not rendered here",
    )
    assert different == {}
    assert not_rendered == NOT_RENDERED_HERE[engine.engine]
    assert compared > 350


def _first_difference(here: list[int], there: list[int]) -> int:
    return next(place for place, (one, other) in enumerate(zip_longest(here, there)) if one != other)


@TINY
@pytest.mark.parametrize("path", DIALECTS, ids=lambda path: path.removeprefix("/v1/").replace("/", "-"))
def test_the_gateway_counts_every_prompt_as_the_engine_does(front: Front, path: str, figures: Figures) -> None:
    requests = in_dialect(path)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(requests, pool.map(lambda body: _post(front.http, body), requests), strict=True))
    served = {body.name: answer for body, answer in answers.items() if answer.status_code == httpx.codes.OK}
    names = {answer.headers["x-request-id"]: name for name, answer in served.items()}
    different = {names[request_id]: counts for request_id, counts in front.differences().items()}
    equal = front.gateway.metric("prefixgate_token_comparisons_total", outcome="equal")
    compared = equal + front.gateway.metric("prefixgate_token_comparisons_total", outcome="different")
    name = front.engine.engine
    figures.add_share(
        name,
        f"{path}: prompts counted as the engine counts them",
        int(equal),
        int(compared),
        least=1.0,
        more=f"{len(requests) - len(served)} refused",
    )

    assert different == {}
    assert compared == len(served.keys() - NOT_KNOWN_HERE)
    refused = [body for body in requests if body.name not in served]
    alone = {body.name for body in refused if _post(front.direct, body).status_code == httpx.codes.OK}
    assert alone == REFUSED_BY_THE_GATEWAY_ALONE.get((name, path), set())
    rows = {row.request_id: row for row in front.ledger()}
    assert all(rows[request_id].prompt_tokens is not None for request_id in names)
    assert all(rows[request_id].cached_tokens is not None for request_id in names)


def _post(http: httpx.Client, body: Body) -> httpx.Response:
    return http.post(body.path, content=one_token(body))
