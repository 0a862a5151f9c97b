"""The nouns of the gateway: one request as data, from the client's bytes to the settled record.

bytes --edge--> InferenceRequest --tokens, blocks--> Plan --scheduling--> Decision --relay--> Outcome
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType

from billing import Quota
from gateway.timing import Marks
from prefix_index import Chain
from prefix_index.prompt import PromptView

RequestId = NewType("RequestId", str)
"""Made by the gateway, one for each client request; ids from clients and engines are attributes only."""

TenantId = NewType("TenantId", str)
KeyId = NewType("KeyId", str)

Headers = tuple[tuple[bytes, bytes], ...]

USUAL_OUTPUT_TOKENS: Final = 256
"""Expected length of an answer whose request sets no limit."""


class Route(StrEnum):
    """The inference paths; the value is the path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    EMBEDDINGS = "/v1/embeddings"
    OTHER = "other"
    """A path of the engine's own that its allow-list opens and that is metered."""


class Reason(StrEnum):
    """Why a decision had, or had not, a prefix to go by. Each request has exactly one."""

    PREFIX_HIT = "prefix_hit"
    """The chosen endpoint is expected to hold at least one block, and no other that could be chosen more."""
    PREFIX_ELSEWHERE = "prefix_elsewhere"
    """Another endpoint holds more, but waiting there costs more seconds than computing here."""
    CHEAPER = "cheaper"
    """Another endpoint would have been a little quicker, and costs more an hour (`scheduling.cheaper_within_s`)."""
    PREFIX_COPIED = "prefix_copied"
    """The prefix is hot: its requests have waited for its holders longer than one more copy takes, so it was sent where
    there was none."""
    NO_PREFIX = "no_prefix"
    """No endpoint holds the first block."""
    SHORT_PROMPT = "short_prompt"
    """The prompt has no whole block that could be reused."""
    POLICY = "policy"
    """The policy in force does not look at prefixes."""
    UNSUPPORTED_CONTENT = "unsupported_content"
    """Images, audio or another part whose tokens are not known here."""
    NOT_TOKENIZED = "not_tokenized"
    """The prompt could not be turned into token ids: no template for it, or the template refused it."""
    ENGINE_ALTERS = "engine_alters"
    """A field makes the engine read other tokens than the messages say, such as a template in the request."""
    PROMPT_BATCH = "prompt_batch"
    """Several prompts in one request."""
    PREVIOUS_RESPONSE = "previous_response"
    """The prompt continues a response that its engine keeps: only that engine knows the tokens, and it gets them."""
    NO_KV = "no_kv"
    """The request leaves nothing in a cache and finds nothing there: embeddings and other paths of an engine."""
    NO_DECISION = "no_decision"
    """Nobody could take the request, so nothing was decided."""


def is_named(name: str, names: Iterable[str]) -> bool:
    """Whether a name is among others, of which any may end in `*`. O(names)."""
    return any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in names)


@dataclass(frozen=True, slots=True)
class Scopes:
    """What a key is for; None = everything. A model may end in `*`.

    `models` are names as clients write them. Without `fallbacks` no other model answers in place of the one asked for.
    """

    models: frozenset[str] | None = None
    endpoints: frozenset[str] | None = None
    routes: frozenset[str] | None = None
    fallbacks: bool = True

    def allow_model(self, model: str) -> bool:
        """Whether the key may use a model. O(names)."""
        return self.models is None or is_named(model, self.models)

    def allow_endpoint(self, endpoint_id: str) -> bool:
        """Whether its requests may go to an endpoint."""
        return self.endpoints is None or endpoint_id in self.endpoints

    def allow_route(self, path: str) -> bool:
        """Whether it may be used on a path."""
        return self.routes is None or path in self.routes


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who is billed and isolated, as seen through one of its keys.

    `share_group` names the tenants who may hit each other's prefixes; `salt` is what the engine is given to keep
    groups apart (hex text, at most 64 characters). `tags` are for the books; `scopes` and `quota` are None where the
    key is for everything, and without limits.
    """

    id: TenantId
    key_id: KeyId
    share_group: str
    salt: str
    tags: Mapping[str, str] | None = None
    scopes: Scopes | None = None
    quota: Quota | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """What a client says of a request for the books: the run it is part of, a hash of who asked, its own tags."""

    job_id: str | None = None
    end_user: str | None = None
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ForeignForm:
    """A request of another dialect than OpenAI's chat: its decoded body, and the chat that asks the same.

    `untranslatable` is the place of something that no chat can say, or that must be said to translate it;
    `previous_response_id` the response that it continues.
    """

    body: Mapping[str, object] = field(repr=False)
    chat: Mapping[str, object] = field(repr=False)
    untranslatable: str | None = None
    previous_response_id: str | None = None


class Arm(StrEnum):
    """Which side of a comparison a request with something to fix is on."""

    FIXED = "on"
    LEFT = "off"
    """It was left as it came, to compare with."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The names of the fixes that changed a request on its way, or would have."""

    arm: Arm
    fixes: tuple[str, ...]

    @property
    def names(self) -> str:
        """`tools+lines`."""
        return "+".join(self.fixes)

    def __str__(self) -> str:
        """As the ledger has it: `on:tools+lines`."""
        return f"{self.arm}:{self.names}"


class Trouble(StrEnum):
    """Why a model does not answer, where another may in its place."""

    UNAVAILABLE = "unavailable"
    """No endpoint takes requests for it."""
    FULL = "full"
    """Its endpoints are full, and so is the queue before them, or it waited there too long."""
    FAILED = "failed"
    """Its endpoints failed before the first byte."""
    SLOW = "slow"
    """They stayed silent too long."""
    TOO_LONG = "too_long"
    """The prompt does not fit into its context."""


@dataclass(frozen=True, slots=True)
class Routed:
    """How the name that a client used led to the model of a request.

    `rule` names what did, out of the configuration; None where the model is the one that was named. `arm` is that of
    the name's arms which it goes to, `endpoints` the only ones that serve the arm (None: all of the model), and
    `falls_back_on` what makes the next model answer.
    """

    asked: str
    rule: str | None = None
    arm: str | None = None
    endpoints: frozenset[str] | None = None
    falls_back_on: frozenset[Trouble] = frozenset()

    def allow_endpoint(self, endpoint_id: str) -> bool:
        """Whether the request may go to an endpoint. O(names)."""
        return self.endpoints is None or is_named(endpoint_id, self.endpoints)


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One client request: a parsed view and the original bytes.

    `model` is empty where the client named none. `client_wants_usage` says whether the client asked for the usage event
    of a stream itself. `max_output_tokens` is None where the client set no limit. `adapter` is what the body says of
    adapters beside the model's name, as canonical JSON. `blind` names why the prompt's tokens cannot be known, where
    the request itself tells so. `started_s` is monotonic, `opened_at` wall time in UTC. `user` is whom the client says
    it asks for, and goes no further than into the hash in `labels`. `choices` is how many answers are asked for.
    `steering` names the fields of the body that are not a client's to set, and that no engine gets.
    `fixes` are those that a rule made, or would have made, so that `body` and `prompt` are not the client's own then.
    `routed` says how the client's name led to `model`, where names are configured. `marks` are the moments of its way,
    noted as it goes.
    """

    id: RequestId
    tenant: Tenant
    route: Route
    path: str
    model: str
    stream: bool
    client_wants_usage: bool
    max_output_tokens: int | None
    prompt: PromptView
    body: bytes = field(repr=False)
    headers: Headers = field(repr=False)
    started_s: float
    opened_at: datetime
    foreign: ForeignForm | None = None
    adapter: str | None = None
    blind: Reason | None = None
    user: str | None = field(default=None, repr=False)
    labels: Labels = Labels()
    choices: int = 1
    steering: frozenset[str] = frozenset()
    has_stream_options: bool = False
    fixes: Applied | None = None
    routed: Routed | None = None
    marks: Marks = field(default_factory=Marks, repr=False, compare=False)

    @property
    def expected_output_tokens(self) -> int:
        """How long its answer is expected to be: as long as it may, or as answers usually are."""
        return USUAL_OUTPUT_TOKENS if self.max_output_tokens is None else self.max_output_tokens

    @property
    def asked_model(self) -> str:
        """The name that the client used."""
        return self.model if self.routed is None else self.routed.asked

    def falls_back_on(self, trouble: Trouble) -> bool:
        """Whether another model is asked where this one is in such trouble."""
        return self.routed is not None and trouble in self.routed.falls_back_on

    @property
    def translatable(self) -> bool:
        """Whether an engine that speaks only chat completions can serve it."""
        return self.foreign is not None and self.foreign.untranslatable is None

    @property
    def previous_response_id(self) -> str | None:
        """The response that this one continues."""
        return None if self.foreign is None else self.foreign.previous_response_id

    @property
    def route_path(self) -> str:
        """The path without its query: a name for records and metrics, out of a bounded set."""
        return self.path.partition("?")[0]


class TokenSource(StrEnum):
    """Where the token ids of a prompt came from, best first."""

    LOCAL = "local"
    ENGINE = "engine"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Plan:
    """A prompt ready to be matched. `no_affinity` is set where the chain must not be believed, and says why.

    `source` is None where there are no tokens at all. `exact`: the tokens are the engine's own, so their number may be
    held against its report; not so for bytes, beside pictures, and where the counts have been found to differ.
    `shape` names the kind of request for that comparison. `local_tokens` is what the tokenizer given here counts, where
    it is not believed: the comparison goes on, so that it can be believed again. `base` is the model whose tokenizer
    the prompt is for: of an adapter, the one that it belongs to.
    """

    chain: Chain
    source: TokenSource | None
    no_affinity: Reason | None = None
    exact: bool = True
    shape: str = ""
    local_tokens: int | None = None
    root: bytes = b""
    base: str = ""
    space: int = 0
    """Where the tokens of its share group are remembered."""

    @property
    def counted(self) -> tuple[TokenSource, int] | None:
        """What is held against the engine's count of the prompt, and where it is from; None where nothing can be."""
        if self.local_tokens is not None:
            return TokenSource.LOCAL, self.local_tokens
        prompt_tokens = self.prompt_tokens
        return None if self.source is None or prompt_tokens is None else (self.source, prompt_tokens)

    @property
    def prompt_tokens(self) -> int | None:
        """The engine's own count, or None where it was not tokenised as the engine would."""
        return self.chain.prompt_tokens if self.exact and self.source is not None else None
