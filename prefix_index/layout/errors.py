"""What can be wrong with a template, or with what fills it.

PrefixIndexError
|- TemplateInvalid       the source is none, or asks for what templates do not have
|- VariablesInvalid      a variable is missing, or none of the template's
`- RenderingFailed       the template could not make a prompt of these variables
"""

from collections.abc import Sequence

from prefix_index.errors import PrefixIndexError


class TemplateInvalid(PrefixIndexError):
    """A template that cannot be read; the text says where."""


class VariablesInvalid(PrefixIndexError):
    """The variables of a call are not those of the template."""

    def __init__(self, missing: Sequence[str], unknown: Sequence[str]) -> None:
        self.missing, self.unknown = tuple(missing), tuple(unknown)
        said = (("missing", self.missing), ("not of this template", self.unknown))
        super().__init__("variables " + "; ".join(f"{what}: {', '.join(names)}" for what, names in said if names))


class RenderingFailed(PrefixIndexError):
    """Rendering broke off; `why` holds nothing of the variables."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the template could not be rendered: {why}")
        self.why = why
