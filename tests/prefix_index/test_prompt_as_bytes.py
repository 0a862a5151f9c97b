"""What stands for the tokens of a prompt where nobody could tell them."""

import pytest

from prefix_index.errors import UnsupportedContent
from prefix_index.prompt import PromptView, bytes_as_tokens, given_ids
from prefix_index.prompt.media import media_of
from prefix_index.token_bytes import unpack
from prefix_index.types import TOKEN_BYTES

IMAGE: dict[str, object] = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
USER: dict[str, object] = {"role": "user", "content": "a question of some length"}


def test_a_prompt_stands_for_itself_in_whole_tokens() -> None:
    ids = bytes_as_tokens(PromptView(messages=[USER], tools=[{"a": 2**70}], documents=[1]))
    assert len(ids) % TOKEN_BYTES == 0
    assert (
        ids.rstrip()
        == b'[[{"a":1180591620717411303424}],[1],[{"role":"user","content":"a question of some length"}],null]'
    )
    assert bytes_as_tokens(PromptView(prompt="ab")).rstrip() == b'[null,null,null,"ab"]'


def test_a_longer_conversation_begins_as_the_shorter_does() -> None:
    answer: dict[str, object] = {"role": "assistant", "content": "an answer"}
    short, long = (bytes_as_tokens(PromptView(messages=list(said))) for said in ([USER], [USER, answer]))
    common = len(short.rstrip()) - len("],null]")
    assert long[:common] == short[:common]


def test_pictures_are_digests_of_what_they_show() -> None:
    shown = bytes_as_tokens(
        PromptView(messages=[{"role": "user", "content": ["a", IMAGE, {"type": "text", "text": "b"}]}])
    )
    digest = media_of(IMAGE).digest.hex().encode()
    assert (
        shown.rstrip()
        == b'[null,null,[{"role":"user","content":["a","' + digest + b'",{"type":"text","text":"b"}]}],null]'
    )


def test_what_cannot_be_written_is_named_and_not_guessed() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for view in (
        PromptView(prompt="a", documents=[deep]),
        PromptView(messages=[{"role": "user", "content": [{"type": "hologram"}]}]),
    ):
        with pytest.raises(UnsupportedContent):
            bytes_as_tokens(view)


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1, 2, 3]]])
def test_ids_that_the_client_sent_are_taken_as_they_are(prompt: list[object]) -> None:
    ids = given_ids(PromptView(prompt=prompt))
    assert ids is not None
    assert list(unpack(ids)) == [1, 2, 3]


@pytest.mark.parametrize(
    "view",
    [
        PromptView(messages=[USER]),
        PromptView(prompt="a"),
        PromptView(prompt=["a"]),
        PromptView(prompt=["a", "b"]),
        PromptView(prompt=[-1]),
    ],
)
def test_other_prompts_are_no_ids(view: PromptView) -> None:
    assert given_ids(view) is None
