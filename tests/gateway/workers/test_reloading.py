"""What a reload may change."""

from pathlib import Path

import pytest

from gateway.config import Config, ConfigInvalid, load_config
from gateway.workers.reloading import FIXED, taken_over
from tests.repo.test_docs import DOCS, config_keys


def config(**flags: object) -> Config:
    given = {name.replace("__", "."): value for name, value in flags.items()}
    return load_config(None, {}, {"backends": [{"url": "http://a"}], **given})


def test_what_workers_alone_read_is_taken_over() -> None:
    new = config(backends=[{"url": "http://b"}], scheduling__policy="random", ledger__chain_tokens=256)
    assert taken_over(config(), new) == (new, [])


def test_what_the_supervisor_holds_stays_and_is_named() -> None:
    running = config(workers=2)
    new = config(workers=3, listen__port=1, ledger__path="other.db", index__redis_url="redis://r", poll_interval_s=9)
    taken, kept = taken_over(running, new)
    assert kept == ["listen", "workers", "index.redis_url", "ledger.path"]
    assert taken == config(workers=2, poll_interval_s=9)


def test_what_does_not_fit_to_what_stays_is_refused() -> None:
    running = config(workers=2, index__redis_url="redis://r", index__embedded=False)
    taken, kept = taken_over(running, config(workers=2))
    assert (taken, kept) == (running, ["index.redis_url", "index.embedded"])
    with pytest.raises(ConfigInvalid):
        config(workers=2, index__embedded=False)


def test_every_key_that_waits_for_a_restart_exists_and_is_documented() -> None:
    keys = {*config_keys(Config), *(name for name in Config.model_fields)}
    assert set(FIXED) <= keys
    text = (Path(DOCS) / "operations.md").read_text()
    assert [key for key in FIXED if f"`{key}" not in text] == []


def test_an_address_that_only_one_of_several_workers_could_bind_is_refused() -> None:
    bound = [{"url": "http://a", "kv_events": {"url": "tcp://*:5557"}}]
    assert config(backends=bound).workers == 1
    with pytest.raises(ConfigInvalid, match=r"kv_events.url of a: only one of several workers could bind it"):
        config(backends=bound, workers=2)
