"""What in a prompt changes, and in which order its parts should stand.

spots, judged_name         literals and names of what changes                    (volatile, names)
read_template              sources -> messages of segments                       (reading)
ordered                    a template, fixed text first; what moved, and why     (compiler)
expected_share             what an order is worth over a sample of prompts       (share)
Renderer, as_text          a template and variables -> messages                  (rendering)
"""

from prefix_index.layout.compiler import Layout, Move, Stay, ordered
from prefix_index.layout.errors import RenderingFailed, TemplateInvalid, VariablesInvalid
from prefix_index.layout.names import judged_name
from prefix_index.layout.reading import Source, read_template
from prefix_index.layout.rendering import Renderer, as_text
from prefix_index.layout.share import Count, ExpectedShare, by_bytes, expected_share
from prefix_index.layout.template import Mark, PromptTemplate, Segment, SegmentKind, Syntax, TemplateMessage
from prefix_index.layout.types import Cause, Certainty, Spot, Volatility, volatility_of
from prefix_index.layout.volatile import spots

__all__ = [
    "Cause",
    "Certainty",
    "Count",
    "ExpectedShare",
    "Layout",
    "Mark",
    "Move",
    "PromptTemplate",
    "Renderer",
    "RenderingFailed",
    "Segment",
    "SegmentKind",
    "Source",
    "Spot",
    "Stay",
    "Syntax",
    "TemplateInvalid",
    "TemplateMessage",
    "VariablesInvalid",
    "Volatility",
    "as_text",
    "by_bytes",
    "expected_share",
    "judged_name",
    "ordered",
    "read_template",
    "spots",
    "volatility_of",
]
