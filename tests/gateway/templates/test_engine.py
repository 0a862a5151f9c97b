"""What an order is worth, by the word of an engine that computes."""

from pathlib import Path

import pytest

from backends.reference.embedded import RunningEngine
from tests.gateway.conftest import MODEL, STORY, StartGateway
from tests.gateway.templates.files import folder

TEXT = """\
name: {name}
version: 1
reorder: {reorder}
messages:
  - role: system
    content: "Time: {{{{ now }}}}\\n\\n{name} {story}"
  - {{role: user, content: "{{{{ question }}}}"}}
"""


@pytest.mark.parametrize(("reorder", "is_cached"), [("off", False), ("consented", True)])
def test_an_engine_finds_the_fixed_part_only_where_it_comes_first(
    engine: RunningEngine, start_gateway: StartGateway, tmp_path: Path, reorder: str, is_cached: bool
) -> None:
    place = folder(tmp_path / "templates", t=TEXT.format(name=f"of-{reorder}", reorder=reorder, story=STORY))
    gateway = start_gateway(engine.url, templates_dir=place)
    cached = []
    for now in ("10:00", "23:59"):
        variables = {"now": now, "question": "Who keeps the well?"}
        body = {"model": MODEL, "template": f"of-{reorder}", "variables": variables, "max_tokens": 1}
        answer = gateway.http.post("/v1/chat/completions", json=body)
        usage = answer.json()["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
    assert (cached[1] > 0.8) is is_cached, cached
