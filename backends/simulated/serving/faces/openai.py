"""Any other server of the OpenAI protocol: chats, completions, a list of models, and nothing told of itself."""

from collections.abc import Sequence

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.face import Face, Moment, Reply, Shape, Site, nested_error, plain_usage
from backends.simulated.serving.faces import usual
from backends.simulated.serving.types import Json, Tally


def _no_route(status: int) -> Reply:
    return Reply(nested_error(Refused(status, "Not Found", kind="invalid_request_error")), status)


def _models(site: Site) -> Reply:
    return usual.models(site, "organization-owner")


def _usage(site: Site, tallies: Sequence[Tally], moment: Moment) -> Json:
    report = usual.usage_with_cached if site.spec.reports_cached_tokens else plain_usage
    return report(site, tallies, moment)


OPENAI = Face(
    name="openai",
    version="",
    error=nested_error,
    headers=(),
    pages={"/v1/models": _models},
    usage=_usage,
    no_route=_no_route,
    unauthorized={
        "error": {
            "message": "Incorrect API key provided.",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
    },
    overload=Refused(429, "Rate limit reached, please try again later.", kind="rate_limit_error"),
    shape=Shape(
        role={"role": "assistant", "content": "", "refusal": None},
        ends_alone=True,
        choice={"logprobs": None},
        top={"system_fingerprint": None},
        message={"refusal": None},
        usage_null=True,
    ),
)
