"""EndpointSlices listed and watched, at a strict API server on a real port that expires, breaks off and refuses."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from backends.discovery.kubernetes import ApiAccess, KubernetesSlices, Reaching, SliceApi
from tests.backends.discovery.api_server import NAMESPACE, ApiServer, api_server, endpoint
from tests.backends.discovery.reports import Told

TLS = Path(__file__).parents[2] / "data" / "tls"
BY_HTTP = Reaching()
A, B, C = (f"http://10.0.0.{number}:8000" for number in (1, 2, 3))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("t0ken\n")
    return path


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as running:
        await running.put("vllm-abc", [endpoint("10.0.0.1", "vllm-0"), endpoint("10.0.0.2", "vllm-1")])
        await running.put("other-xyz", [endpoint("10.9.9.9")], labels={"kubernetes.io/service-name": "other"})
        yield running


@asynccontextmanager
async def watched(
    api: ApiServer, token_file: Path | None, reaching: Reaching = BY_HTTP, ca_file: Path | None = None
) -> AsyncIterator[Told]:
    """A source that runs until the block ends."""
    access = ApiAccess(api.url, NAMESPACE, "kubernetes.io/service-name=vllm", token_file, ca_file)
    told, source = Told(), KubernetesSlices("k8s", SliceApi(access), reaching, rng=random.Random(1))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(source.run(told))
        yield told
        running.cancel()


async def test_pods_of_a_service_are_endpoints_named_as_they_are(api: ApiServer, token_file: Path) -> None:
    async with watched(api, token_file) as told:
        await told.until(lambda: told.urls == [A, B])
        assert told.listing is not None
        assert [one.id for one in told.listing] == ["vllm-0", "vllm-1"]
        await api.until_watched()
        await api.put("vllm-def", [endpoint("10.0.0.3", "vllm-2")])
        await told.until(lambda: told.urls == [A, B, C])
        await api.delete("vllm-abc")
        await told.until(lambda: told.urls == [C])
    assert told.problems == []


async def test_a_pod_that_is_not_ready_is_held_one_that_ends_too_and_one_that_serves_no_more_is_gone(
    api: ApiServer, token_file: Path
) -> None:
    async with watched(api, token_file) as told:
        await told.until(lambda: told.urls == [A, B])
        await api.until_watched()
        await api.put("vllm-abc", [endpoint("10.0.0.1", ready=False, serving=False), endpoint("10.0.0.2")])
        await told.until(lambda: told.urls == [B])
        assert told.listing is not None
        assert [(one.url, one.draining) for one in told.listing] == [(A, True), (B, False)]
        ending = endpoint("10.0.0.1", ready=False, serving=True, terminating=True)
        await api.put("vllm-abc", [ending, endpoint("10.0.0.2", ready=False, serving=False, terminating=True)])
        await told.until(lambda: told.listing is not None and [one.url for one in told.listing] == [A])
        assert told.listing[0].draining


async def test_conditions_that_are_not_said_mean_ready(api: ApiServer, token_file: Path) -> None:
    await api.put("vllm-abc", [{"addresses": ["10.0.0.1"]}, endpoint("10.0.0.2", ready=None, serving=None)])
    async with watched(api, token_file) as told:
        await told.until(lambda: told.urls == [A, B])


async def test_a_watch_that_ends_in_its_time_goes_on_from_where_it_was(api: ApiServer, token_file: Path) -> None:
    async with watched(api, token_file) as told:
        await api.until_watched()
        await api.put("vllm-def", [endpoint("10.0.0.3")])
        await told.until(lambda: told.urls == [A, B, C])
        await api.end_watches()
        await api.until_watched(2)
        lists = [query for query in api.asked if "watch" not in query]
        assert len(lists) == 1
        assert api.asked[-1]["resourceVersion"] == str(api.version)
    assert told.problems == []


async def test_a_line_that_breaks_off_is_no_change_and_nothing_is_missed(api: ApiServer, token_file: Path) -> None:
    async with watched(api, token_file) as told:
        await api.until_watched()
        await api.break_off()
        await api.put("vllm-def", [endpoint("10.0.0.3")])  # nobody watches
        await told.until(lambda: told.urls == [A, B, C])
        assert len([query for query in api.asked if "watch" not in query]) == 1


async def test_a_bookmark_spares_a_list_when_old_versions_are_forgotten(api: ApiServer, token_file: Path) -> None:
    async with watched(api, token_file) as told:
        await api.until_watched()
        for number in range(5):
            await api.put("other-xyz", [endpoint(f"10.9.9.{number}")], labels={"kubernetes.io/service-name": "other"})
        told.news.clear()
        await api.bookmark()
        async with asyncio.timeout(10):
            await told.news.wait()
        api.forget_history()
        await api.end_watches()
        await api.until_watched(2)
        assert len([query for query in api.asked if "watch" not in query]) == 1


@pytest.mark.parametrize("as_event", [True, False])
async def test_endpoints_that_went_while_the_watch_was_too_old_are_seen_to_be_gone(
    api: ApiServer, token_file: Path, as_event: bool
) -> None:
    """Entries of pods that are gone stayed in others' indexes for good, since the removal was never heard."""
    api.gone_as_event = as_event
    async with watched(api, token_file) as told:
        await told.until(lambda: told.urls == [A, B])
        await api.until_watched()
        await api.break_off(mid_line=False)
        await api.put("vllm-def", [endpoint("10.0.0.3")])
        await api.delete("vllm-abc")
        api.forget_history()
        await told.until(lambda: told.urls == [C])
        assert told.listing is not None
        assert len(told.listing) == 1


async def test_a_watch_that_is_told_that_it_is_too_old_lists_again(api: ApiServer, token_file: Path) -> None:
    async with watched(api, token_file) as told:
        await api.until_watched()
        await api.expire()
        await api.until_watched(2)
        await api.put("vllm-def", [endpoint("10.0.0.3")])
        await told.until(lambda: told.urls == [A, B, C])


async def test_a_long_list_comes_in_pages_and_a_page_that_is_too_old_begins_anew(
    api: ApiServer, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.discovery.kubernetes.api.PAGE_SLICES", 2)
    for number in range(7):
        await api.put(f"vllm-{number}", [endpoint(f"10.1.0.{number}")])
    async with watched(api, token_file) as told:
        await told.until(lambda: told.urls is not None and len(told.urls) == 9)
    pages = [query for query in api.asked if "watch" not in query]
    assert [("continue" in query) for query in pages] == [False, True, True, True]


async def test_an_api_server_that_fails_takes_nobody_away_and_says_so(api: ApiServer, token_file: Path) -> None:
    async with watched(api, token_file) as told:
        await told.until(lambda: told.urls == [A, B])
        await api.until_watched()
        api.failure = (503, "ServiceUnavailable", {})
        await api.break_off(mid_line=False)
        await told.until(lambda: "the API server answers 503 ServiceUnavailable" in told.problems)
        assert told.urls == [A, B]
        api.failure = None
        await api.put("vllm-def", [endpoint("10.0.0.3")])
        await told.until(lambda: told.urls == [A, B, C])


async def test_one_that_may_not_list_is_told_what_it_lacks(api: ApiServer, token_file: Path) -> None:
    api.failure = (403, "Forbidden", {})
    async with watched(api, token_file) as told:
        await told.until(lambda: bool(told.problems))
    assert told.problems[0].endswith("the service account may not list and watch endpointslices here")
    assert told.listing is None


async def test_a_token_that_is_replaced_is_read_anew(api: ApiServer, token_file: Path) -> None:
    async with watched(api, token_file) as told:
        await api.until_watched()
        api.token = "an0ther"
        await api.break_off(mid_line=False)
        await told.until(lambda: any("the token is not accepted" in one for one in told.problems))
        token_file.write_text("an0ther")
        await api.put("vllm-def", [endpoint("10.0.0.3")])
        await told.until(lambda: told.urls == [A, B, C])


async def test_the_api_server_is_believed_by_its_own_authority_alone(token_file: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    async with api_server(tls=context) as api:
        await api.put("vllm-abc", [endpoint("10.0.0.1")])
        async with watched(api, token_file, ca_file=TLS / "cert.pem") as told:
            await told.until(lambda: told.urls == [A])
        async with watched(api, token_file) as told:
            await told.until(lambda: bool(told.problems))
            assert told.listing is None


async def test_one_address_in_two_slices_is_one_endpoint_and_a_pod_of_two_families_too(
    api: ApiServer, token_file: Path
) -> None:
    await api.put("vllm-zzz", [endpoint("10.0.0.1", "vllm-0", ready=False, serving=False)])
    await api.put("vllm-v6", [endpoint("fd00::1", "vllm-0"), endpoint("fd00::9", "vllm-9")], addressType="IPv6")
    async with watched(api, token_file) as told:
        await told.until(lambda: told.urls == [A, B, "http://[fd00::9]:8000"])


@pytest.mark.parametrize(
    ("wanted", "urls"),
    [(None, [A, B]), ("metrics", ["http://10.0.0.1:9000", "http://10.0.0.2:9000"]), (9000, None), ("none", [])],
)
async def test_the_port_is_chosen_by_name_or_number(
    api: ApiServer, token_file: Path, wanted: str | int | None, urls: list[str] | None
) -> None:
    ports = [{"name": "metrics", "port": 9000, "protocol": "TCP"}, {"name": "http", "port": 8000, "protocol": "TCP"}]
    await api.put("vllm-abc", [endpoint("10.0.0.1"), endpoint("10.0.0.2")], ports=ports)
    async with watched(api, token_file, Reaching(port=wanted)) as told:
        await told.until(lambda: told.listing is not None)
        assert told.urls == (urls if urls is not None else ["http://10.0.0.1:9000", "http://10.0.0.2:9000"])


async def test_labels_and_annotations_say_what_an_endpoint_is(api: ApiServer, token_file: Path) -> None:
    labels = {"prefixgate.io/role": "prefill", "prefixgate.io/model": "m"}
    annotations = {"prefixgate.io/gpu-cost-per-hour": "2.50", "prefixgate.io/model": "org/model"}
    await api.put("vllm-abc", [endpoint("10.0.0.1")], labels=labels, annotations=annotations)
    others = {"prefixgate.io/gpu-cost-per-hour": "a lot", "prefixgate.io/role": "canary"}
    await api.put("vllm-def", [endpoint("10.0.0.2")], annotations=others)
    async with watched(api, token_file) as told:
        await told.until(lambda: told.listing is not None)
        assert told.listing is not None
        assert [found.settings for found in told.listing] == [{"role": "prefill"}, {}]
        one, other = (found.traits for found in told.listing)
    assert (one.role, one.model, one.gpu_cost_per_hour) == ("prefill", "org/model", "2.50")
    assert (other.role, other.gpu_cost_per_hour) == ("canary", None), "a role that is none of ours is shown"


async def test_a_server_that_wants_to_be_left_alone_for_a_while_is(api: ApiServer, token_file: Path) -> None:
    api.failure = (429, "TooManyRequests", {"retry-after": "0"})
    async with watched(api, token_file) as told:
        await told.until(lambda: len(told.problems) > 2)  # it said at once, which is a little later all the same
        api.failure = None
        await told.until(lambda: told.urls == [A, B])
