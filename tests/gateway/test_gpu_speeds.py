"""The GPU that a configuration names says how fast an endpoint is believed to be."""

import pytest

from backends import EndpointId, PerfModel
from backends.hardware import expected_speed
from gateway.config import Backend, ConfigInvalid, load_config
from gateway.edge.auth import open_to_all
from gateway.options import fleet_options, prior_of


def test_an_endpoint_is_believed_to_be_as_its_gpu_and_by_its_own_rate_before_that() -> None:
    backends = [
        {"url": "http://a", "id": "a"},
        {"url": "http://b", "id": "b", "gpu": "l4"},
        {"url": "http://c", "id": "c", "gpu": "h100", "gpus": 4, "gpu_model": "llama-3.1-70b"},
        {"url": "http://d", "id": "d", "gpu": "l4", "prefill_tokens_per_s": 1234},
        {"url": "http://e", "id": "e", "prefill_tokens_per_s": 99},
    ]
    config = load_config(None, {}, {"backends": backends})
    speeds = fleet_options(config, open_to_all(b"")).speeds
    prior = config.scheduling
    alike = PerfModel(prior.base_s, prior.prefill_tokens_per_s, prior.quad_s_per_token2, prior.itl_s)
    assert speeds[EndpointId("a")] == alike
    assert speeds[EndpointId("b")] == expected_speed("l4")
    assert speeds[EndpointId("c")] == expected_speed("h100", 4, "llama-3.1-70b")
    assert speeds[EndpointId("d")].prefill_tokens_per_s == 1234
    assert speeds[EndpointId("d")].itl_s == expected_speed("l4").itl_s
    assert (speeds[EndpointId("e")].prefill_tokens_per_s, speeds[EndpointId("e")].itl_s) == (99, alike.itl_s)


@pytest.mark.parametrize("field", ["gpu", "gpu_model"])
def test_an_unknown_name_is_refused_with_those_that_are_known(field: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"abacus is none of .*(h100|llama)"):
        load_config(None, {}, {"backends": [{"url": "http://a", field: "abacus"}]})


def test_a_found_endpoint_is_believed_to_be_as_the_gpu_of_its_source() -> None:
    prior = load_config(None, {}, {}).scheduling
    assert prior_of(Backend.model_validate({"url": "http://p", "gpu": "b200"}), prior) == expected_speed("b200")


@pytest.mark.parametrize("gpus", [0, 80_000, 10**400])
def test_so_many_gpus_as_no_endpoint_has_are_refused_and_not_at_the_start_of_serving(gpus: int) -> None:
    with pytest.raises(ConfigInvalid, match=r"backends.0.gpus"):
        load_config(None, {}, {"backends": [{"url": "http://a", "gpu": "h100", "gpus": gpus}]})
