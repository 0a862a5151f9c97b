"""Metrics of kept templates. Labels are names of the operator's and our own words."""

from prometheus_client import CollectorRegistry

from gateway.metrics import counters


class TemplateMetrics:
    """What becomes of calls by template, and of the files that hold them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = counters(
            registry,
            "prefixgate_template_calls",
            "Requests that called a template, by template and version.",
            ["template", "version"],
        )
        self.refused = counters(
            registry,
            "prefixgate_template_refusals",
            "Calls of templates that were refused: not_found, not_allowed, variables, invalid.",
            ["reason"],
        )
        self.reloads = counters(
            registry,
            "prefixgate_template_reloads",
            "Changes of the folder of templates by what became of them: taken, invalid.",
            ["outcome"],
        )
