"""The HTTP server: routes, errors, the optional API key."""

import asyncio
import hmac
import time
from concurrent.futures import Future

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from backends.reference import answers
from backends.reference.apart.fetching import PATH
from backends.reference.errors import EngineStopped, RequestRefused, TransferFailed
from backends.reference.routes import chat_completions, completions, json_response
from backends.reference.service import Service
from backends.reference.wire import ChatBody, DetokenizeBody, TokenizeBody, parse_body

VERSION = "0.1.0"
OWNER = "prefixgate-reference"


def create_app(service: Service) -> Starlette:
    """The ASGI application in front of one running engine."""
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/models", _models),
            Route("/health", _health),
            Route("/version", _version),
            Route("/metrics", _metrics),
            Route("/kv_event_sources", _kv_event_sources),
            Route("/tokenize", _tokenize, methods=["POST"]),
            Route("/detokenize", _detokenize, methods=["POST"]),
            Route(PATH + "{name}", _kv_transfer, methods=["POST"]),
            Route("/reset_prefix_cache", _reset_prefix_cache, methods=["POST"]),
        ],
        middleware=[Middleware(RequireApiKey, api_key=service.engine.config.api_key)],
        exception_handlers={
            RequestRefused: _on_refused,
            EngineStopped: _on_stopped,
            TransferFailed: _on_transfer_failed,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_gone,
        },
    )
    app.state.service = service
    app.state.created = int(time.time())
    return app


class RequireApiKey:
    """Bearer check on `/v1` paths, as vLLM's: the other paths are for operators and stay open."""

    def __init__(self, app: ASGIApp, api_key: str | None) -> None:
        self._app = app
        self._expected = None if api_key is None else f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] == "http" and scope["path"].startswith("/v1") and self._expected is not None:
            given = Headers(scope=scope).get("authorization", "").encode()
            if not hmac.compare_digest(given, self._expected):
                await json_response({"error": "Unauthorized"}, status=401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _models(request: Request) -> Response:
    service: Service = request.app.state.service
    item: answers.Json = {
        "id": service.model,
        "object": "model",
        "created": request.app.state.created,
        "owned_by": OWNER,
        "root": service.engine.config.model,
        "parent": None,
        "max_model_len": service.engine.max_model_len,
        "permission": [],
    }
    return json_response({"object": "list", "data": [item]})


async def _health(request: Request) -> Response:
    service: Service = request.app.state.service
    return Response(status_code=200 if service.engine.ended is None else 503)


async def _version(request: Request) -> Response:
    return json_response({"version": VERSION})


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    return Response(service.engine.metrics.exposition(), media_type="text/plain; version=0.0.4")


async def _kv_event_sources(request: Request) -> Response:
    service: Service = request.app.state.service
    events = service.engine.events
    return json_response({} if events is None else events.sources())


async def _tokenize(request: Request) -> Response:
    service: Service = request.app.state.service
    raw = await request.body()
    body = parse_body(raw, TokenizeBody)
    service.check_model(body.model)
    tokens = await asyncio.to_thread(_tokens_of, service, body, raw)
    return json_response(
        {
            "count": len(tokens),
            "max_model_len": service.engine.max_model_len,
            "tokens": tokens,
            "token_strs": service.tokenizer.token_strings(tokens) if body.return_token_strs else None,
        }
    )


def _tokens_of(service: Service, body: TokenizeBody, raw: bytes) -> list[int]:
    if body.messages is not None:
        return service.render(parse_body(raw, ChatBody))
    if body.prompt is None:
        raise RequestRefused("give prompt or messages", param="prompt")
    return service.tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens)


async def _detokenize(request: Request) -> Response:
    service: Service = request.app.state.service
    body = parse_body(await request.body(), DetokenizeBody)
    service.check_model(body.model)
    tokens = service.check_token_ids(body.tokens, "tokens")
    return json_response({"prompt": service.tokenizer.decode(tokens, skip_special_tokens=False)})


async def _reset_prefix_cache(request: Request) -> Response:
    service: Service = request.app.state.service
    done: Future[bool] = service.engine.reset_prefix_cache()
    success: bool = await asyncio.wrap_future(done)
    return json_response({"success": success})


async def _kv_transfer(request: Request) -> Response:
    service: Service = request.app.state.service
    taken = None if service.transfers is None else await service.transfers.take(request.path_params["name"])
    if taken is None:
        raise RequestRefused("no such blocks: they were fetched, or nobody fetched them in time", status=404)
    return Response(taken, media_type="application/octet-stream")


async def _on_transfer_failed(request: Request, error: Exception) -> Response:
    return json_response(answers.error_body(str(error), "InternalServerError", 500), status=500)


async def _on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefused)
    return json_response(answers.refusal_body(error), status=error.status)


async def _on_stopped(request: Request, error: Exception) -> Response:
    return json_response(answers.error_body(str(error), "ServiceUnavailableError", 503), status=503)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "NotFoundError" if error.status_code == 404 else "BadRequestError"
    return json_response(answers.error_body(error.detail, kind, error.status_code), status=error.status_code)


async def _on_gone(request: Request, error: Exception) -> Response:
    """The client left while its body was read; nobody reads this answer."""
    return Response(status_code=499)
