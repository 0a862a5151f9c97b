"""An invoice as one HTML file: no script, no font, no picture and no address from elsewhere; everything is escaped."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from billing.invoicing.page import DRAFT_WORDS, Page


def render_html(page: Page) -> str:
    """The file's text; the same page is the same text."""
    return _template().render(page=page, draft_words=DRAFT_WORDS)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("invoice.html.jinja")
