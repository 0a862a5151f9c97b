"""Which rule a request falls under, and on which side of a comparison it is. Pure.

tenant, route, model  -->  the first rule that names them, or names nobody  -->  its fixes
job, else conversation, else request  --hash-->  0 ... share: fixed | share ... 1: left as it came
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from gateway.config_sections import FixRule
from gateway.fixes.types import SAFE_FIXES, Fix, How, Mode, ToolsOrder, VolatileTo
from gateway.types import Arm, InferenceRequest, Route

FIXABLE: Final = (Route.CHAT, Route.MESSAGES, Route.RESPONSES)
USUAL_FIXES: Final = (Fix.TOOLS, Fix.LINES)
"""Of a tenant that has consented, where none are named."""
_WHOLE: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the configuration, ready to be asked. `tenants`, `routes` and `models` are empty for all."""

    tenants: frozenset[str]
    routes: frozenset[str]
    models: tuple[str, ...]
    mode: Mode
    fixes: tuple[Fix, ...]
    ab_share: float
    shadow_share: float
    tools_order: ToolsOrder
    volatile_to: VolatileTo
    most_lines: int

    def is_of(self, request: InferenceRequest) -> bool:
        """Whether a request falls under it. A model may end in `*`."""
        return (
            (not self.tenants or request.tenant.id in self.tenants)
            and (not self.routes or request.route.value in self.routes)
            and (not self.models or any(_names(name, request.asked_model) for name in self.models))
        )

    def how(self, route: Route, tools_in: tuple[str, ...] | None = None) -> How:
        """What it does to a request of a route."""
        return How(route, self.fixes, self.volatile_to, self.most_lines, tools_in)


def rules_of(sections: Iterable[FixRule]) -> tuple[Rule, ...]:
    """The rules as configured, in their order; none where none does anything."""
    rules = tuple(_rule(section) for section in sections)
    return rules if any(rule.fixes for rule in rules) else ()


def rule_of(rules: Iterable[Rule], request: InferenceRequest) -> Rule | None:
    """The first rule that a request falls under; None where there is none, or it does nothing."""
    if request.route not in FIXABLE:
        return None
    rule = next((rule for rule in rules if rule.is_of(request)), None)
    return rule if rule is not None and rule.fixes else None


def arm_of(request: InferenceRequest, share: float) -> Arm:
    """The side of a request: all of a job, and else of a conversation, are on the same."""
    if share >= 1:
        return Arm.FIXED
    digest = blake2b(_name_of(request).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return Arm.FIXED if int.from_bytes(digest, "little") < share * _WHOLE else Arm.LEFT


def _rule(section: FixRule) -> Rule:
    mode = Mode(section.mode)
    usual = USUAL_FIXES if mode in (Mode.CONSENTED, Mode.SHADOW) else SAFE_FIXES
    named = usual if section.fixes is None else tuple(Fix(name) for name in section.fixes)
    allowed = () if mode is Mode.OFF else tuple(fix for fix in named if mode is not Mode.SAFE or fix in SAFE_FIXES)
    return Rule(
        tenants=frozenset(section.tenants),
        routes=frozenset(section.routes),
        models=section.models,
        mode=mode,
        fixes=allowed,
        ab_share=section.ab_share,
        shadow_share=section.shadow_share,
        tools_order=ToolsOrder(section.tools_order),
        volatile_to=VolatileTo(section.volatile_to),
        most_lines=section.most_lines,
    )


def _names(name: str, model: str) -> bool:
    return model.startswith(name[:-1]) if name.endswith("*") else model == name


def _name_of(request: InferenceRequest) -> str:
    """What a request has in common with the others of its run."""
    if request.labels.job_id is not None:
        return f"job {request.tenant.id} {request.labels.job_id}"
    for message in request.prompt.messages or ():
        if message.get("role") == "user":
            return f"conversation {request.tenant.id} {_text_of(message.get('content'))}"
    return request.id


def _text_of(content: object) -> str:
    """What a message says, in whichever form: clients move cache marks, and turn a text into blocks and back."""
    if not isinstance(content, list):
        return str(content)
    texts = [block.get("text", block) if isinstance(block, dict) else block for block in content]
    return "\n".join(map(str, texts))
