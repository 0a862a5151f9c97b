"""What the site needs beside its pages: no link out of docs/, and nothing that a browser would fetch from elsewhere.

Pages link to files of the checkout (`../bench/...`), which are not in the site: there the words stay and the link goes.
"""

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

_LINK: Final = re.compile(r"\[([^\]\n]*)\]\((\.\./[^)\s#]*)[^)\s]*\)")
_ELSEWHERE: Final = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"'> ]*"
    r"|<link\b[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload|icon)[^>]*\bhref=[\"']?(?:https?:)?//[^\"'> ]*"
    r"|(?:url\(|@import )[\"']?(?:https?:)?//[^\"')]*"
)
_SEARCH: Final = 'data-md-component="search" role="dialog"'
_FALLBACK_HOST: Final = "https://unpkg.com/"
"""Where the theme's script would get a polyfill for browsers of before 2020, and diagrams, of which there are none."""


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Called by mkdocs for each page before it is rendered."""
    folder = posixpath.dirname(page.file.src_uri)

    def within(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[1] if target.startswith("../") else match[0]

    return _LINK.sub(within, markdown)


def on_post_page(output: str, **_: object) -> str:
    """Called by mkdocs for each page as HTML: the search, a dialog, gets the name that a screen reader says."""
    return output.replace(_SEARCH, _SEARCH + ' aria-label="Search"')


def on_post_build(config: MkDocsConfig) -> None:
    """Called by mkdocs when all is written. Raises `PluginError` for a page that loads something from another host."""
    site = Path(config.site_dir)
    for script in site.rglob("bundle.*.js"):
        script.write_text(script.read_text(encoding="utf-8").replace(_FALLBACK_HOST, "about:blank#"), encoding="utf-8")
    found = [
        f"{path.relative_to(site)}: {match[0]}"
        for pattern in ("*.html", "*.css")
        for path in sorted(site.rglob(pattern))
        for match in _ELSEWHERE.finditer(path.read_text(encoding="utf-8"))
    ]
    if found:
        raise PluginError("the site would load from elsewhere: " + "; ".join(found[:5]))
