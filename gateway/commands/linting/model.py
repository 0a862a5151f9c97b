"""The model's side of `prefixgate lint`: its tokenizer counts, and its chat template is tried at several times."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from gateway.commands.linting.requests import view_of
from gateway.terminal import refused
from prefix_index import TemplateFailed, TokenizerUnavailable, UnsupportedContent
from prefix_index.lint import Asked, Finding, Place, Request, template_dates
from prefix_index.prompt import ModelText, PromptView, load_model_text

_MOST_RENDERED: Final = 8
"""Requests of one file that are rendered: tools may bring another part of a template in, little else does."""
_PLAIN: Final = PromptView(messages=[{"role": "user", "content": "Hello."}])


class Clocked:
    """One model, whose template is told the time that it is asked about."""

    def __init__(self, directory: Path, chat_template: Path | None = None) -> None:
        """Blocking. Raises what `refused` makes."""
        self._now = datetime(2026, 1, 1, tzinfo=UTC)
        try:
            self._text: ModelText = load_model_text(directory, chat_template, lambda: self._now)
        except (TokenizerUnavailable, TemplateFailed) as error:
            raise refused(f"--model {directory}: {error}") from None

    def count_tokens(self, text: str) -> int:
        """Tokens of a text on its own."""
        return self._text.count_tokens(text)

    def ids(self, view: PromptView, now: datetime) -> Sequence[int]:
        """Token ids of a prompt at a time. Raises `TemplateFailed` or `UnsupportedContent`."""
        self._now = now
        rendered = self._text.prompt_of(view)
        whole: list[int] = []
        for piece in rendered.pieces:
            whole += self._ids_of(piece, view) if isinstance(piece, str) else memoryview(piece).cast("I").tolist()
        return whole

    def _ids_of(self, text: str, view: PromptView) -> Sequence[int]:
        if self._text.tokenizer is None:
            raise UnsupportedContent("no tokenizer")
        found = self._text.tokenizer.whole.encode(text, add_special_tokens=view.add_special_tokens)
        return memoryview(found).cast("I").tolist()


def dates_of(model: Clocked, directory: Path, requests: Sequence[Request], asked: Asked) -> list[Finding]:
    """What the template writes of its own into the first requests, or into a plain one: one finding at most."""
    for place, view in _views(directory, requests):
        try:
            found = template_dates(place, partial(model.ids, view), asked)
        except (TemplateFailed, UnsupportedContent):
            continue
        if found is not None:
            # Of a prompt that nobody sent, only the place counts.
            return [found if view is not _PLAIN else replace(found, lost_tokens=None, level=found.rule.level)]
    return []


def _views(directory: Path, requests: Sequence[Request]) -> Sequence[tuple[Place, PromptView]]:
    views: list[tuple[Place, PromptView]] = []
    for request in requests[:_MOST_RENDERED]:
        view = view_of(msgspec.json.encode(request.body), request.body)
        if view is not None:
            views.append((Place(request.path, request.line, 1, 0, request.number, "chat template"), view))
    return [*views, (Place(directory.as_posix()), _PLAIN)]
