"""The one place where failures become an answer: status, code, type and a text that says what would help.

    GatewayError
    |- BadRequest            400   the body cannot be used; nothing was changed
    |- Unauthorized          401   no key, an unknown, expired or revoked one
    |- NotLoggedIn           401   the dashboard's session is over, or never was
    |- WrongToken            401   another token than the dashboard's
    |- TooManyLogins         429   too many wrong tokens
    |- TooManyViewers        429   as many dashboards are open as may
    |- Forbidden             403   the key is not for that
    |- ModelNotPriced        403   a budget is to be counted, and the model has no price
    |- NotFound              404   no such path
    |- MethodNotAllowed      405
    |- ModelNotFound         404   no backend serves the model
    |- ContextTooLong        400   the prompt does not fit into the model's context, nor into one that stands in
    |- TemplateNotFound      404   no such template, or version of it
    |- TemplateNotAllowed    403   the template is not for the tenant
    |- TemplateVariables     400   a template cannot be filled with the variables of the call
    |- RequestTimeout        408   the client sent its request too slowly
    |- BodyTooLarge          413
    |- UriTooLong            414
    |- HeadTooLarge          431   too many header fields, or too long ones
    |- RateLimited           429   a limit of the tenant or the key; try again
    |- BudgetSpent           429   the period's money is spent
    |- TenantQueueFull       429   all endpoints are full, and as many of the tenant wait as may
    |- Internal              500   a fault of the gateway itself
    |- UpstreamFailed        502   the endpoint broke off or answered nonsense
    |- Unavailable           503   no endpoint, or the ledger is down; try again
    |  |- NobodyThere              no endpoint takes requests for the model
    |  |- LimitsUnavailable        limits cannot be checked
    |  |- QueueFull                all endpoints are full, and as many wait as may
    |  |- QueueTimeout             ... and its turn did not come in time
    |  `- Overloaded               too much is under way; try again
    |     `- EndpointBusy          an endpoint takes no more, and no other can take over
    `- UpstreamTimeout       504   the endpoint stayed silent

Bodies have the shape of the OpenAI API: `{"error": {"message", "type", "param", "code"}}`.
"""

from typing import ClassVar

import msgspec

from backends import BackendError, DialFailed, DialReason, FirstByteTimeout, IdleTimeout, NoEndpoint
from billing import LedgerUnavailable
from gateway.types import Headers


class GatewayError(Exception):
    """An answer that is an error; subclasses fix the status and the machine-readable code."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    kind: str = "server_error"
    retry_after_s: int | None = None
    headers: Headers = ()
    """Further headers of the answer."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def body(self) -> bytes:
        """The error as an OpenAI client expects it."""
        return msgspec.json.encode(
            {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}
        )


class BadRequest(GatewayError):
    """The body cannot be used as it is; `param` names the field where one is to blame."""

    status = 400
    code = "invalid_request"
    kind = "invalid_request_error"


class Unauthorized(GatewayError):
    """No API key was sent, or one that nobody has."""

    status = 401
    code = "invalid_api_key"
    kind = "invalid_request_error"


class NotLoggedIn(GatewayError):
    """The dashboard is asked without a session, or with one that is over."""

    status = 401
    code = "not_logged_in"
    kind = "invalid_request_error"


class WrongToken(GatewayError):
    """A login to the dashboard with another token than its own."""

    status = 401
    code = "wrong_token"
    kind = "invalid_request_error"


class TooManyLogins(GatewayError):
    """Too many wrong tokens were tried."""

    status = 429
    code = "too_many_logins"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooManyViewers(GatewayError):
    """As many dashboards are open as may."""

    status = 429
    code = "too_many_viewers"
    retry_after_s = 10


class Forbidden(GatewayError):
    """The key is known, and is not for this model, route or endpoint."""

    status = 403
    code = "not_allowed"
    kind = "invalid_request_error"


class ModelNotPriced(GatewayError):
    """The key has a budget, and what the model costs is not known."""

    status = 403
    code = "model_not_priced"
    kind = "invalid_request_error"


class NotFound(GatewayError):
    """There is nothing at this path."""

    status = 404
    code = "not_found"
    kind = "invalid_request_error"


class MethodNotAllowed(GatewayError):
    """The path exists, but not for this method."""

    status = 405
    code = "method_not_allowed"
    kind = "invalid_request_error"


class ModelNotFound(GatewayError):
    """No backend serves the model that the request names."""

    status = 404
    code = "model_not_found"
    kind = "invalid_request_error"


class ContextTooLong(GatewayError):
    """The prompt is longer than the model's context, and no model that stands in for it could answer."""

    status = 400
    code = "context_length_exceeded"
    kind = "invalid_request_error"


class TemplateNotFound(GatewayError):
    """The gateway keeps no template of that name and version."""

    status = 404
    code = "template_not_found"
    kind = "invalid_request_error"


class TemplateNotAllowed(GatewayError):
    """The template is kept for other tenants."""

    status = 403
    code = "template_not_allowed"
    kind = "invalid_request_error"


class TemplateVariables(GatewayError):
    """A variable is missing, unknown, or not what the template takes it for."""

    status = 400
    code = "template_variables"
    kind = "invalid_request_error"


class BodyTooLarge(GatewayError):
    """The body is longer than `limits.max_body_bytes`."""

    status = 413
    code = "body_too_large"
    kind = "invalid_request_error"


class RequestTimeout(GatewayError):
    """The request did not arrive in time: `limits.header_s`, `limits.body_idle_s`."""

    status = 408
    code = "request_timeout"
    kind = "invalid_request_error"


class UriTooLong(GatewayError):
    """The path and query of the request are longer than the gateway reads."""

    status = 414
    code = "uri_too_long"
    kind = "invalid_request_error"


class HeadTooLarge(GatewayError):
    """The request has more header fields, or longer ones, than the gateway reads."""

    status = 431
    code = "head_too_large"
    kind = "invalid_request_error"


class RateLimited(GatewayError):
    """A limit of the tenant or the key is reached; `kind` says which: requests, tokens, concurrent_requests, budget."""

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, message: str, kind: str, retry_after_s: int, headers: Headers) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.headers = headers


class BudgetSpent(GatewayError):
    """The money of the period is spent. Clients that try again by themselves are told not to."""

    status = 429
    code = "insufficient_quota"
    kind = "insufficient_quota"

    def __init__(self, message: str, retry_after_s: int, headers: Headers) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.headers = (*headers, (b"x-should-retry", b"false"))


class Unavailable(GatewayError):
    """Nothing can take the request now; trying again later may help."""

    status = 503
    code = "service_unavailable"
    retry_after_s = 1


class NobodyThere(Unavailable):
    """No endpoint takes requests for the model."""


class LimitsUnavailable(Unavailable):
    """Limits cannot be checked, and `quota.limits_down` is `deny`."""

    code = "limits_unavailable"


class Overloaded(Unavailable):
    """More is under way than the gateway takes on: requests, bytes of their bodies, or connections."""

    code = "overloaded"


class EndpointBusy(Overloaded):
    """An endpoint takes no more: it said so, and another model may stand in; or all connections that
    `limits.connections_per_endpoint` allows were busy for `limits.connect_s`."""


class TenantQueueFull(GatewayError):
    """All endpoints are full, and as many requests of the tenant wait as may: `queue.tenant_requests`, `_bytes`."""

    status = 429
    code = "tenant_queue_full"
    kind = "requests"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Unavailable):
    """All endpoints are full, and as many requests of the class wait as may; or the gateway stops."""

    code = "queue_full"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueTimeout(Unavailable):
    """All endpoints are full, and its turn did not come in the time that it may wait, or would not."""

    code = "queue_timeout"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UpstreamFailed(GatewayError):
    """The endpoint broke off or did not speak HTTP, and no other could take over."""

    status = 502
    code = "upstream_failed"


class UpstreamTimeout(GatewayError):
    """The endpoint accepted the request and stayed silent too long."""

    status = 504
    code = "upstream_timeout"


class Internal(GatewayError):
    """A fault of the gateway itself; details are in its log, under the request id."""


def as_gateway_error(error: Exception) -> GatewayError:
    """What a room's error means to the client; anything unknown is `Internal`, without its text."""
    match error:
        case GatewayError():
            return error
        case NoEndpoint():
            return NobodyThere(f"{error}; try again in a moment")
        case DialFailed(reason=DialReason.POOL):
            return EndpointBusy(
                f"endpoint {error.endpoint_id} is busy: all connections that limits.connections_per_endpoint allows to "
                "it are in use, or the gateway may open no more files; try again in a moment"
            )
        case FirstByteTimeout() | IdleTimeout():
            return UpstreamTimeout(str(error))
        case BackendError():
            return UpstreamFailed(str(error))
        case LedgerUnavailable():
            return Unavailable("usage cannot be recorded at the moment, so the request was not served; try again")
        case RecursionError():
            return BadRequest("the request body is nested too deeply")
        case _:
            return Internal("the gateway failed to handle this request; its log has the details")
