"""The rules: each with what it is, why it breaks prefixes, what to do, and whether that is safe.

An engine reuses a prompt up to the first token that differs from what it has. So each rule names something that makes
two prompts differ sooner than they have to.
"""

from collections.abc import Mapping
from typing import Final

from prefix_index.layout import Cause
from prefix_index.lint.types import Level, Rule, Safety

_AFTER_IT: Final = "everything behind it is computed again"
_TO_THE_END: Final = "Move it behind the fixed text, best into the last user message"


def _before_fixed(id_: str, what: str, why: str, fix: str = _TO_THE_END, level: Level = Level.WARNING) -> Rule:
    return Rule(f"{id_}-before-fixed", f"{what} stands before fixed text", why, f"{fix}.", Safety.CONSENT, level)


TIME = _before_fixed("time", "The time", f"It is another in every call: {_AFTER_IT}.")
DATE = _before_fixed("date", "The date", f"At midnight the whole prompt is a new one, on every endpoint: {_AFTER_IT}.")
EPOCH = _before_fixed("epoch", "A time in seconds", f"It is another in every call: {_AFTER_IT}.")
UUID = _before_fixed(
    "uuid",
    "A UUID",
    f"It never comes twice: {_AFTER_IT}.",
    "Leave it out, or move it behind the fixed text; ids for tracing belong in a header or `metadata`",
)
HEX_ID = _before_fixed(
    "id",
    "An id of a request",
    f"It never comes twice: {_AFTER_IT}.",
    "Leave it out, or move it behind the fixed text; ids for tracing belong in a header or `metadata`",
)
SESSION = _before_fixed(
    "session", "An id of a session", "No two conversations share what stands behind it, however much of it is the same."
)
COUNTER = _before_fixed("counter", "A counter", f"It is another in every call: {_AFTER_IT}.")
RANDOM = _before_fixed("random", "Something random", f"It is another in every call: {_AFTER_IT}.")
USER = _before_fixed(
    "user", "A user's name or data", "No two users share what stands behind it, however much of it is the same."
)
CONTENT = _before_fixed(
    "content",
    "What the call is about",
    f"Each call brings its own: {_AFTER_IT}, though it is the same instructions every time.",
    "Put the instructions first and what they are about behind them",
)

HISTORY_AFTER = Rule(
    "volatile-before-history",
    "The system prompt changes with every call, and a conversation follows it",
    "Each turn computes the whole conversation again, however late in the system prompt the change stands.",
    "Move it into the last user message, or freeze it for the conversation.",
    Safety.CONSENT,
)
TOOL_ORDER = Rule(
    "tool-order",
    "The same tools in changing order",
    "Tools are rendered before or in the system prompt: another order is another prompt from its first tokens on.",
    "Sort them by name, once, in the same way everywhere.",
    Safety.CONSENT,
    Level.ERROR,
)
TOOL_DRIFT = Rule(
    "tool-schema-drift",
    "A tool is described in other words or another order of keys",
    "Keys, descriptions and enums of a tool are rendered as they come: what stands behind a change is computed again.",
    "Make the schema once and send it unchanged; do not generate it from sets or unordered maps.",
    Safety.CONSENT,
)
TOOL_SET = Rule(
    "tool-set-change",
    "Other tools within one conversation",
    "Tools are rendered before the conversation: one more or less, and all of it is computed again.",
    "Send all tools of a conversation from its first call on; restrict with `tool_choice`, do not leave tools out.",
    Safety.CONSENT,
)
SCHEMA_CHANGE = Rule(
    "response-schema-change",
    "Another response schema for the same prompt",
    "Where an engine or a template writes the schema into the prompt, what stands behind it is computed again.",
    "Keep one schema for a kind of call. Do not reorder its properties: answers follow their order.",
    Safety.CONSENT,
    Level.NOTE,
)
EXAMPLES = Rule(
    "examples-shuffled",
    "Examples come in changing order",
    "The first example that stands elsewhere ends the prefix, and all that follow are computed again.",
    "Choose one order and keep it; an order per call buys nothing that a prefix costs.",
    Safety.CONSENT,
)
DOCUMENTS = Rule(
    "documents-by-score",
    "Documents are ordered by score",
    "The same documents come in another order for each question: nothing behind the first is ever found again.",
    "Put fixed text before them; if the model's owner agrees, order documents by id instead of score.",
    Safety.CONSENT,
)
HISTORY_CUT = Rule(
    "history-cut",
    "The conversation loses its oldest turns",
    "When its head goes, every turn behind it stands at another place: the whole conversation is computed again, in "
    "every call from then on.",
    "Cut seldom and much (half of it, when it is full) instead of one turn a call, or summarise.",
    Safety.CONSENT,
)
HISTORY_CHANGED = Rule(
    "history-changed",
    "A message in the midst of a conversation changes",
    "What was said behind it is as before, and is computed again.",
    "Add to a conversation at its end; leave reasoning and old results of tools out when it begins, or never.",
    Safety.CONSENT,
)
TEMPLATE_DATE = Rule(
    "template-date",
    "The model's chat template writes the date",
    "The request is the same and the prompt is not: it changes at midnight (or with every call), from the date on.",
    "Give the template a fixed date (`chat_template_kwargs`), or a template that writes none.",
    Safety.CONSENT,
)
UNDER_BLOCK = Rule(
    "under-block",
    "The system prompt is shorter than a block",
    "Engines keep whole blocks: what is shorter is never found again by itself.",
    "Nothing, if it has to be short. Else put what is the same in all calls (rules, examples) into it.",
    Safety.SAFE,
    Level.NOTE,
)
UNDER_MINIMUM = Rule(
    "under-minimum",
    "The fixed head is shorter than what the provider keeps",
    "Providers keep nothing below a minimum (1,024 tokens and more): every call pays the full price.",
    "Put what is fixed together at the head, or take it as it is.",
    Safety.SAFE,
    Level.NOTE,
)
IMAGE = Rule(
    "image-reencoded",
    "An image at the same place comes in other bytes",
    "Engines know an image by its bytes: a new encoding of the same picture is another image, and all behind it is "
    "computed again. From the bytes alone it cannot be told whether the picture is the same.",
    "Encode a picture once and keep the bytes; do not sign its URL anew in every call.",
    Safety.SAFE,
)
MODEL_FLIP = Rule(
    "model-flip",
    "The same prompt goes to another model name",
    "A cache belongs to one model: under another name (an alias, a dated version) all is computed once more.",
    "Use one name for a kind of call; resolve aliases at one place.",
    Safety.CONSENT,
)
SALT = Rule(
    "salt-change",
    "`cache_salt` changes between calls of one key",
    "Nothing that was computed under another salt is ever used: a salt per call switches the cache off.",
    "One salt for each group that may share a cache, not one for each call.",
    Safety.SAFE,
    Level.ERROR,
)
FIRST_DIFFERENCE = Rule(
    "first-difference",
    "Text before the conversation differs between calls",
    "Up to here the two prompts are the same, and behind it again: what stands between ends the prefix.",
    "Find out what writes it, and move it behind the fixed text.",
    Safety.CONSENT,
)

BEFORE_FIXED: Final[Mapping[Cause, Rule]] = {
    Cause.TIME: TIME,
    Cause.DATE: DATE,
    Cause.EPOCH: EPOCH,
    Cause.UUID: UUID,
    Cause.HEX_ID: HEX_ID,
    Cause.REQUEST_ID: HEX_ID,
    Cause.SESSION_ID: SESSION,
    Cause.COUNTER: COUNTER,
    Cause.RANDOM: RANDOM,
    Cause.USER: USER,
    Cause.CONTENT: CONTENT,
}
"""By cause; what is configured, and what nobody knows the cause of, is no fault."""

RULES: Final[Mapping[str, Rule]] = {
    rule.id: rule
    for rule in (
        *(TIME, DATE, EPOCH, UUID, HEX_ID, SESSION, COUNTER, RANDOM, USER, CONTENT, HISTORY_AFTER),
        *(
            TOOL_ORDER,
            TOOL_DRIFT,
            TOOL_SET,
            SCHEMA_CHANGE,
            EXAMPLES,
            DOCUMENTS,
            HISTORY_CUT,
            HISTORY_CHANGED,
            TEMPLATE_DATE,
        ),
        *(UNDER_BLOCK, UNDER_MINIMUM, IMAGE, MODEL_FLIP, SALT, FIRST_DIFFERENCE),
    )
}
