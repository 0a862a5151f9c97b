"""Pictures, sound and files: equal where their content is, different from their place on where it is not."""

import base64
import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_index.errors import UnsupportedContent
from prefix_index.prompt import (
    ModelText,
    PromptView,
    Renderer,
    Unsupported,
    has_media,
    media_chars,
    renders_long,
)
from prefix_index.prompt.chat_template import ChatTemplate
from prefix_index.prompt.media import MediaMarks, media_of
from prefix_index.prompt.weight import LOOP_SAFE_MEDIA_CHARS
from prefix_index.token_bytes import unpack
from prefix_index.tokens import HuggingFaceTokenizer
from prefix_index.types import TokenIds
from tests.prefix_index.prompt_data import ids, model_directory

STRING = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PARTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}<{{ p.type }}>{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}"
)
IMAGES_FIRST = (
    "{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}<image>{% endif %}{% endfor %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}"
)
RED, BLUE = b"red pixels " * 9, b"blue pixels " * 9

Part = dict[str, Any]


def data_url(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def image(content: bytes | str, **more: object) -> Part:
    url = content if isinstance(content, str) else data_url(content)
    return {"type": "image_url", "image_url": {"url": url, **more}}


def said(*parts: Part | str) -> PromptView:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return PromptView(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}])


@pytest.fixture(scope="module")
def tokenizer() -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer.from_file(model_directory() / "tokenizer.json")


@pytest.fixture(params=[STRING, PARTS], ids=["text", "parts"])
def text(request: pytest.FixtureRequest, tokenizer: HuggingFaceTokenizer) -> ModelText:
    return ModelText(tokenizer, {"default": ChatTemplate(request.param)})


@pytest.fixture
def parts_text(tokenizer: HuggingFaceTokenizer) -> ModelText:
    return ModelText(tokenizer, {"default": ChatTemplate(PARTS)})


def first_difference(left: list[int], right: list[int]) -> int:
    return next(place for place, (one, other) in enumerate(zip(left, right, strict=True)) if one != other)


def test_equal_pictures_give_equal_ids_and_different_ones_part_at_the_picture(text: ModelText) -> None:
    red, again, blue = (ids(text, said("What is ", image(content), "this?")) for content in (RED, RED, BLUE))
    assert red == again
    place = first_difference(red, blue)
    assert red[place + 4 :] == blue[place + 4 :]
    assert red[place : place + 4] == list(unpack(TokenIds(media_of(image(RED)).digest)))


def test_text_in_front_of_a_picture_is_shared_where_it_comes_first(parts_text: ModelText) -> None:
    red, blue = (ids(parts_text, said("What is ", image(content))) for content in (RED, BLUE))
    words = ids(parts_text, said("What is "))
    assert first_difference(red, blue) == len(words) - len(ids(parts_text, PromptView(prompt="<|im_end|>\n")))


def test_a_later_turn_keeps_the_ids_up_to_and_with_the_picture(text: ModelText) -> None:
    first = said("See ", image(RED), " here")
    assert first.messages is not None
    longer = PromptView(messages=[*first.messages, {"role": "assistant", "content": "I do."}])
    before = ids(text, first)
    assert ids(text, longer)[: len(before)] == before


def test_pieces_are_text_with_sixteen_bytes_in_the_place_of_each_picture(parts_text: ModelText) -> None:
    rendered = parts_text.prompt_of(said("a", image(RED), "b", image(BLUE)))
    assert rendered.pieces == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na",
        media_of(image(RED)).digest,
        "<image>b",
        media_of(image(BLUE)).digest,
        "<image><|im_end|>\n",
    )
    assert not rendered.exact
    assert parts_text.prompt_of(said("a")).exact


def test_vllm_puts_placeholders_in_front_of_the_text_and_other_engines_in_their_place(
    tokenizer: HuggingFaceTokenizer,
) -> None:
    digest = media_of(image(RED)).digest
    view = PromptView(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, image(RED), "b"]}])
    expected = {
        Renderer.VLLM: ("<|im_start|>user\n", digest, "\na\nb<|im_end|>\n"),
        Renderer.TRTLLM: ("<|im_start|>user\n", digest, "\na\nb<|im_end|>\n"),
        Renderer.PLAIN: ("<|im_start|>user\na\n", digest, "\nb<|im_end|>\n"),
        Renderer.LLAMACPP: ("<|im_start|>user\na", digest, "b<|im_end|>\n"),
        Renderer.TGI: ("<|im_start|>user\na", digest, "b<|im_end|>\n"),
    }
    for renderer, pieces in expected.items():
        model = ModelText(tokenizer, {"default": ChatTemplate(STRING)}, renderer=renderer)
        assert model.prompt_of(view).pieces == pieces, renderer


def test_a_picture_alone_in_a_message_stands_without_a_line_of_text(text: ModelText) -> None:
    assert media_of(image(RED)).digest in text.prompt_of(said(image(RED))).pieces


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (image(RED), image(data_url(RED, "image/jpeg"))),
        (image(RED), {"type": "image_url", "image_url": data_url(RED)}),
        (image(RED), {"type": "input_image", "image_url": data_url(RED)}),
        (image(RED), {"type": "image", "image": data_url(RED)}),
        (image(RED), image(RED, detail="auto")),
        (image(RED), {**image(RED), "cache_control": {"type": "ephemeral"}}),
        (image(RED), image("data:image/png;base64," + base64.encodebytes(RED).decode())),
        (image("data:,abc%20d"), image("data:text/plain,abc%20d")),
        (image("data:;base64,@@@ @"), image("data:;base64,@@@@")),
        (
            {"type": "input_audio", "input_audio": {"data": base64.b64encode(RED).decode(), "format": "wav"}},
            {"type": "input_audio", "input_audio": {"format": "wav", "data": base64.encodebytes(RED).decode()}},
        ),
        (
            {"type": "file", "file": {"file_data": data_url(RED, "application/pdf")}},
            {"type": "file", "file": {"file_data": base64.b64encode(RED).decode()}},
        ),
    ],
)
def test_the_same_content_spelled_differently_has_one_digest(one: Part, other: Part) -> None:
    assert media_of(one) != media_of(other) or one == other
    assert media_of(one).digest == media_of(other).digest


DIFFERENT: list[Part] = [
    image(RED),
    image(BLUE),
    image(RED, detail="low"),
    {**image(RED), "uuid": "u1"},
    {**image(RED), "uuid": "u2"},
    {"type": "image_url", "uuid": "u1", "image_url": None},
    image("https://example.com/a.png"),
    image("https://example.com/b.png"),
    {"type": "video_url", "video_url": {"url": data_url(RED)}},
    {"type": "audio_url", "audio_url": {"url": data_url(RED)}},
    {"type": "input_audio", "input_audio": {"data": base64.b64encode(RED).decode(), "format": "wav"}},
    {"type": "input_audio", "input_audio": {"data": base64.b64encode(RED).decode(), "format": "mp3"}},
    {"type": "input_audio", "input_audio": {"data": "not base64!", "format": "mp3"}},
    {"type": "file", "file": {"file_data": base64.b64encode(RED).decode(), "filename": "a.pdf"}},
    {"type": "file", "file": {"file_data": base64.b64encode(RED).decode(), "filename": "b.pdf"}},
    {"type": "file", "file": {"file_id": "file-1"}},
    {"type": "input_file", "file_id": "file-2"},
    {"type": "video", "video": ["https://example.com/1.png", "https://example.com/2.png"]},
    {"type": "video", "video": ["https://example.com/1.png"]},
    {"type": "document", "source": {"type": "text", "data": "words"}},
]


def test_different_content_has_different_digests() -> None:
    assert len({media_of(part).digest for part in DIFFERENT}) == len(DIFFERENT)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "<|im_end|>", *range(len(DIFFERENT))]), max_size=6))
def test_prompts_with_media_are_equal_exactly_when_their_parts_are(choice: list[str | int]) -> None:
    view = said(*(part if isinstance(part, str) else DIFFERENT[part] for part in choice))
    again = PromptView(messages=json.loads(json.dumps(view.messages)))
    model = _shared_model()
    assert ids(model, view) == ids(model, again)
    media = [DIFFERENT[part] for part in choice if isinstance(part, int)]
    pieces = model.prompt_of(view).pieces
    assert [piece for piece in pieces if isinstance(piece, bytes)] == [media_of(part).digest for part in media]
    assert has_media(view) is bool(media)


@functools.cache
def _shared_model() -> ModelText:
    whole = HuggingFaceTokenizer.from_file(model_directory() / "tokenizer.json")
    return ModelText(whole, {"default": ChatTemplate(PARTS)})


def test_a_chat_shows_media_where_a_part_is_not_text_however_little_is_in_it() -> None:
    assert not has_media(PromptView(prompt="a"))
    assert not has_media(said("a", "b"))
    shown: tuple[Part, ...] = (
        image(RED),
        image(""),
        {"type": "hologram"},
        {},
        {"type": "tool_result", "content": [[[[image(RED)]]]]},
    )
    assert all(has_media(said("a", part)) for part in shown)
    assert media_chars(said("a", image(RED), "b")) == len("image_url") + len(data_url(RED))
    assert media_chars(said("a")) == 0


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.role }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
        "{% for m in messages %}{{ m.content[:30] }}{% endfor %}",
        "{% for m in messages %}{{ m.content | tojson(ensure_ascii=True) }}{% endfor %}",
    ],
)
def test_where_a_mark_does_not_come_out_once_nothing_is_guessed(template: str, tokenizer: HuggingFaceTokenizer) -> None:
    model = ModelText(tokenizer, {"default": ChatTemplate(template)})
    with pytest.raises(UnsupportedContent) as caught:
        model.prompt_of(said("a", image(RED)))
    assert caught.value.kind == Unsupported.IMAGE


def test_a_client_who_writes_a_mark_gets_no_other_prompts_ids(parts_text: ModelText) -> None:
    mark = MediaMarks().mark(media_of(image(RED)))
    with pytest.raises(UnsupportedContent):
        parts_text.prompt_of(said(mark, image(RED)))
    assert parts_text.prompt_of(said(mark)).exact, "without media there are no marks, only text"


def test_a_template_that_writes_pictures_first_has_marks_in_the_same_message(tokenizer: HuggingFaceTokenizer) -> None:
    model = ModelText(tokenizer, {"default": ChatTemplate(IMAGES_FIRST)})
    view = PromptView(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, image(RED)]}])
    assert model.prompt_of(view).pieces == ("<image>a", media_of(image(RED)).digest)


def test_a_tools_answer_may_show_a_picture(parts_text: ModelText) -> None:
    view = PromptView(messages=[{"role": "tool", "content": [{"type": "text", "text": "a"}, image(RED)]}])
    assert parts_text.prompt_of(view).pieces[1] == media_of(image(RED)).digest


def test_a_tokenizer_taken_whole_and_one_that_adds_tokens_take_pieces_too(tokenizer: HuggingFaceTokenizer) -> None:
    model = _shared_model()
    rendered = model.prompt_of(said("a", image(RED), "b"))
    encoding = model.begin_prompt(rendered, add_special_tokens=True)
    encoding.compute()
    assert encoding.finish() == b"".join(
        piece if isinstance(piece, bytes) else tokenizer.encode(piece, add_special_tokens=False)
        for piece in rendered.pieces
    )


def test_long_media_are_hashed_in_a_thread() -> None:
    big = image(RED * (LOOP_SAFE_MEDIA_CHARS // len(RED)))
    assert renders_long(said(big))
    assert not renders_long(said(image(RED), "x" * LOOP_SAFE_MEDIA_CHARS))


@pytest.mark.parametrize(
    "part",
    [{"type": "image_url"}, image(""), {"type": "input_audio", "input_audio": {}}, {"type": "file", "file": None}],
)
def test_media_that_show_nothing_are_named_and_not_guessed(part: Part) -> None:
    with pytest.raises(UnsupportedContent):
        media_of(part)


def test_media_too_deep_to_read_are_named_and_not_guessed() -> None:
    deep: Part = {}
    for _ in range(100_000):
        deep = {"x": deep}
    with pytest.raises(UnsupportedContent):
        media_of({"type": "video", "video": {"url": "https://example.com/v.mp4", "options": deep}})
    assert renders_long(said({"type": "video", "video": deep}))


def test_options_of_media_count() -> None:
    options: list[object] = [
        None,
        {},
        {"fps": 2},
        {"fps": 2.5},
        {"fps": True},
        {"frames": [1, 2]},
        {"frames": [[1], 2]},
    ]
    parts = [{"type": "video", "video": {"url": "https://example.com/v.mp4", "options": option}} for option in options]
    assert len({media_of(part).digest for part in parts}) == len(options)


def test_the_content_of_media_shows_in_no_repr() -> None:
    part = image(b"secret")
    assert base64.b64encode(b"secret").decode() not in repr(media_of(part))
    assert "secret" not in repr(_shared_model().prompt_of(said("secret", part)))
