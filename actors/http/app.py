"""Serving an HTTP + JSON API from a node: one way to listen, and one shape for every error.

Every error answer is `{"code": …, "message": …, "value": …}`: a stable code, a sentence, and the offending value where
there is one. That includes unknown routes, bad JSON, wrong types, bodies that are too long, and what is not HTTP.
"""

import http
import logging
import math
import re
import reprlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    MutableMapping,
)
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, NamedTuple, cast
from weakref import WeakKeyDictionary

import trio
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path

from batonpass.actors.http.body_budget import BodiesUnderWay
from batonpass.actors.http.callers import Caller, asks_for
from batonpass.actors.http.strict_json import MAX_JSON_VALUES, TooManyValues, read_json_untrusted

__all__ = [
    "ERROR_RESPONSES",
    "MESSAGE_CHARS",
    "ApiError",
    "BodyBound",
    "ErrorBody",
    "RequestBody",
    "StrictRoute",
    "Text",
    "bearer_access",
    "bearer_token",
    "document_once",
    "error_response",
    "prepare_app",
    "shortened",
]

_log = logging.getLogger("batonpass.actors.http.app")

# Generous for JSON that people write; sealed parcels with a state in them have a route limit of their own.
DEFAULT_BODY_BYTES: Final = 64 * 1024
# Of all requests under way in one process.
BODIES_BYTES: Final = 64 * 1024 * 1024
_VALUE_CHARS: Final = 200
_INTEGER: Final = re.compile(r"-?[0-9]+")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
MESSAGE_CHARS: Final = 500
_JSON_TYPE: Final = re.compile(r"application/(?:[!#$&^_.+0-9a-z-]+\+)?json", re.ASCII | re.IGNORECASE)
_REPR: Final = reprlib.Repr()
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = _VALUE_CHARS

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class ErrorBody(BaseModel):
    """What every error answer holds."""

    code: str = Field(description="stable code for programs")
    message: str = Field(description="one sentence for people")
    value: Any = Field(default=None, description="the offending value, shortened")
    details: Any = Field(default=None, description="more about the offender for programs, where there is more")
    retry_after_s: float | None = Field(
        default=None, description="with 429: how long to wait before asking again, in seconds"
    )


class RequestBody(BaseModel):
    """Base of the bodies of requests: no other fields than these, and `"1"`, `1.0` and `true` are no integers.

    A number that need not be whole may be an integer. Fields that are no JSON, as enumerations and tuples, take
    `pydantic.Strict(False)`.
    """

    model_config = ConfigDict(extra="forbid", strict=True)


Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$")]
"""A line of text that people read in logs, tables and terminals: without control characters, and of one line."""


# Put on every route, so that the OpenAPI document says what errors look like.
ERROR_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    "default": {"model": ErrorBody, "description": "Every error: a stable code, a sentence, the offending value."}
}


class ApiError(Exception):
    """An error answer: raise it in a route."""

    def __init__(self, status: int, code: str, message: str, value: Any = None, details: Any = None) -> None:
        """`details` is sent as it is: the raiser sees to its being JSON, and not too long."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.value = value
        self.details = details


def error_response(
    status: int,
    code: str,
    message: str,
    value: Any = None,
    headers: Mapping[str, str] | None = None,
    *,
    details: Any = None,
    retry_after_s: float | None = None,
) -> JSONResponse:
    """The JSON answer for one error; long sentences and values are shortened.

    With `retry_after_s` it says when to ask again, and so does its header (RFC 9110, section 10.2.3: whole seconds).
    """
    content = {"code": code, "message": shortened(message, MESSAGE_CHARS), "value": _shown(value), "details": details}
    content["retry_after_s"] = None if retry_after_s is None else round(retry_after_s, 3)
    if retry_after_s is not None:
        headers = {**(headers or {}), "retry-after": str(max(1, math.ceil(retry_after_s)))}
    return JSONResponse(content, status, headers)


def _shown(value: Any) -> str | int | float | bool | None:
    """A value as an error shows it. It comes from a stranger: it may be endless, nested, or not exist in JSON."""
    match value:
        case None | bool():
            return value
        case int() if abs(value) < 2**53:
            return value
        case float() if math.isfinite(value):
            return value
        case str():
            return shortened(value, _VALUE_CHARS)
        case _:
            return shortened(_REPR.repr(value), _VALUE_CHARS)


def shortened(text: str, chars: int) -> str:
    """A text of at most this many characters that can be sent as UTF-8, whatever a peer has put into it."""
    text = text if len(text) <= chars else text[: chars - 1] + "…"
    # JSON can spell half a surrogate pair, UTF-8 cannot.
    return text.encode("utf-8", "replace").decode("utf-8")


async def _on_api_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)  # noqa: S101 — registered for this class only
    # RFC 9110 section 11.6.1: who is asked for credentials is told which kind.
    headers = {"www-authenticate": "Bearer"} if error.status == http.HTTPStatus.UNAUTHORIZED else None
    return error_response(error.status, error.code, error.message, error.value, headers, details=error.details)


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 — registered for this class only
    path = request.url.path
    match error.status_code:
        case 404:
            return error_response(404, "unknown_route", f"there is no {path}; see /openapi.json", path)
        case 405:
            takes = _methods(request)
            message = f"{path} takes {takes}, not {request.method}"
            return error_response(405, "method_not_allowed", message, request.method, {"allow": takes})
        case 413 if isinstance(error, TooManyValuesHere):
            return error_response(413, "too_many_values", str(error.detail), error.most)
        case 400:
            # FastAPI says so of bodies that break the parser: not UTF-8, nested too deep, numbers of 5,000 digits.
            return error_response(400, "bad_json", "the body is not JSON that can be read here")
        case status:
            phrase = http.HTTPStatus(status).phrase
            return error_response(status, phrase.lower().replace(" ", "_"), str(error.detail), None, error.headers)


def _methods(request: Request) -> str:
    """What the routes of this path take; Starlette's own answer names the first of them only."""
    path = request.url.path
    app: FastAPI = request.app
    for template, operations in app.openapi()["paths"].items():
        # A path in the tree is the one parameter that has slashes in it.
        if compile_path(template.replace("{path}", "{path:path}"))[0].match(path):
            return ", ".join(sorted(method.upper() for method in operations))
    return "GET"


async def _on_invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 — registered for this class only
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        why = first.get("ctx", {}).get("error", "")
        return error_response(400, "bad_json", f"the body is not JSON that can be read here: {why}")
    where, given = ".".join(str(part) for part in first["loc"]), first.get("input")
    return error_response(422, "invalid_field", f"{where}: {first['msg']}", given)


class BodyBound(NamedTuple):
    """What the body of one request may be: bytes, and values of JSON (`actors.http.strict_json`)."""

    max_bytes: int = DEFAULT_BODY_BYTES
    max_values: int = MAX_JSON_VALUES


class _Intake:
    """Reads the bodies of requests: each within the bounds of its route, and all of them within one.

    What is too long, or too much of what all share, is refused here, before anything parses it.
    """

    def __init__(self, bounds: Mapping[str, BodyBound], total_bytes: int) -> None:
        self._bounds: Final = dict(bounds)
        self._total_bytes: Final = total_bytes
        self._under_way: Final = BodiesUnderWay(total_bytes)

    def bound_of(self, path: str) -> BodyBound:
        """By the prefix of a path."""
        return next((bound for prefix, bound in self._bounds.items() if path.startswith(prefix)), BodyBound())

    @asynccontextmanager
    async def body_of(self, request: Request) -> AsyncIterator[bytes]:
        """Around the work on a request: its whole body.

        Raises:
            ApiError: `body_too_long`, `too_many_bodies`.
            ClientDisconnect: it does not come to its end.
        """
        limit = self.bound_of(request.url.path).max_bytes
        if _declared_bytes(request.scope) > limit:
            raise _too_long(limit)
        me = trio.CancelScope()
        try:
            with me:
                body = await self._read(request, limit, me)
            if me.cancelled_caught:
                text = (
                    f"the bodies of all requests here take more than {self._total_bytes} bytes, and this one came "
                    f"more slowly than others: try again, or another member"
                )
                raise ApiError(503, "too_many_bodies", text, self._total_bytes)
            yield body
        finally:
            self._under_way.end(me)

    async def _read(self, request: Request, limit: int, me: trio.CancelScope) -> bytes:
        pieces, size, more = list[bytes](), 0, True
        while more:
            try:
                message = await request.receive()
            except trio.BrokenResourceError as error:  # the peer has reset the connection: as if it had hung up
                raise ClientDisconnect from error
            if message["type"] != "http.request":
                raise ClientDisconnect
            piece, more = message.get("body", b""), message.get("more_body", False)
            size += len(piece)
            if size > limit:
                raise _too_long(limit)
            pieces.append(piece)
            for slowest in self._under_way.grows(me, len(piece)):
                assert isinstance(slowest, trio.CancelScope)  # noqa: S101 — nothing else is put there
                slowest.cancel()
                if slowest is me:
                    await trio.lowlevel.checkpoint()
        self._under_way.completes(me)
        return b"".join(pieces)


def _declared_bytes(scope: Scope) -> int:
    """The Content-Length, which the HTTP server holds the body to; 0 when there is none."""
    text = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(text) if text.isdigit() else 0


def _require_json_type(request: Request) -> None:
    """A page of any origin may send a body as text or as a form, and is asked about its origin before it sends JSON.

    Raises `ApiError` (`invalid_field`).
    """
    kind = request.headers.get("content-type", "")
    if _JSON_TYPE.fullmatch(kind.partition(";")[0].strip()) is None:
        text = "body: send it with the header 'Content-Type: application/json'" + (f", not {kind!r}" if kind else "")
        raise ApiError(422, "invalid_field", text, kind)


def _too_long(limit: int) -> ApiError:
    return ApiError(413, "body_too_long", f"the body is longer than {limit} bytes", limit)


class LastResort:
    """ASGI middleware: an unforeseen exception is logged here and answered as JSON, without its text."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except ClientDisconnect:
            pass  # the body did not come; the HTTP server knows why, and says so if there is a peer to hear it
        except Exception as error:
            if started and isinstance(error, trio.BrokenResourceError | trio.TooSlowError):
                raise  # the peer did not take its answer
            _log.exception("%s %s failed", scope.get("method"), scope.get("path"))
            if not started:
                text = "the server failed on this request; its log says why"
                await error_response(500, "internal_error", text)(scope, receive, send)


async def _refuse_strange_queries(request: Request) -> None:
    """A dependency: a parameter that is misspelt, or given twice, may be a condition that a caller relies on."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)  # noqa: S101 — only those have dependencies
    app: FastAPI = request.app
    method = "get" if request.method == "HEAD" else request.method.lower()
    documented = app.openapi()["paths"][route.path_format][method].get("parameters", [])
    known = {parameter["name"]: parameter["schema"] for parameter in documented if parameter["in"] == "query"}
    seen: set[str] = set()
    for name, text in request.query_params.multi_items():
        if name not in known:
            takes = f"takes {', '.join(sorted(known))}" if known else "takes none"
            bad = shortened(name, _VALUE_CHARS)
            message = f"query.{bad}: there is no such parameter; {request.method} here {takes}"
            raise ApiError(422, "invalid_field", message, name)
        if name in seen:
            raise ApiError(422, "invalid_field", f"query.{name}: it is given twice", name)
        # Pydantic takes `1.0` for an integer, and ` 1` and `1_0` for any number, which a typing error may be.
        if "integer" in _types(known[name]) and not _INTEGER.fullmatch(text):
            raise ApiError(422, "invalid_field", f"query.{name}: give it in digits, as an integer", text)
        if "number" in _types(known[name]) and not _NUMBER.fullmatch(text):
            raise ApiError(422, "invalid_field", f"query.{name}: give it as a number is written in JSON", text)
        seen.add(name)


def _types(schema: Mapping[str, Any]) -> set[str]:
    return {option["type"] for option in schema.get("anyOf", [schema]) if "type" in option}


class _StrictRequest(Request):
    """A request whose body has been read."""

    def __init__(self, request: Request, body: bytes, max_values: int) -> None:
        super().__init__(request.scope, request.receive)
        self._body = body
        self._max_values = max_values

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            try:
                self._json = read_json_untrusted(self._body, most=self._max_values)
            except TooManyValues as error:
                raise TooManyValuesHere(error.most) from error
        return self._json


class TooManyValuesHere(HTTPException):
    """As `TooManyValues`, in the one form that FastAPI lets through from where it reads a body."""

    def __init__(self, most: int) -> None:
        super().__init__(413, str(TooManyValues(most)))
        self.most: Final = most


def _nobody(_request: Request) -> bool:
    return False


def bearer_access(
    caller: Caller,
    scheme: HTTPBearer,
    check: Callable[[Request], object],
    *,
    needs_none: Callable[[Request], bool] = _nobody,
) -> Callable[..., Awaitable[None]]:
    """A dependency that has `check` look at the head of a request, mostly at its token; it raises `ApiError`.

    `caller` is who is let in then, as the table of routes says it.

    A request of which `needs_none` says so continues without: its right is another one.

    `StrictRoute` asks before anything is read of a body: what comes without the right is not even parsed. It awaits
    nothing, but a plain function would be run in a worker thread, and there are no threads here.
    """

    def check_head(request: Request) -> None:
        if not needs_none(request):
            check(request)

    async def checked(
        request: Request, _given: Annotated[HTTPAuthorizationCredentials | None, Depends(scheme)]
    ) -> None:
        check_head(request)

    _head_checks[checked] = check_head
    asks_for(caller, checked)
    return checked


# By the dependency. They live as long as the routes of an application.
_head_checks: Final[WeakKeyDictionary[Callable[..., Any], Callable[[Request], None]]] = WeakKeyDictionary()


def bearer_token(request: Request) -> str | None:
    """The bearer token in the head of a request; None if there is none."""
    scheme, token = get_authorization_scheme_param(request.headers.get("authorization"))
    return token if scheme.lower() == "bearer" and token else None


class StrictRoute(APIRoute):
    """A route whose rights are checked first and whose body is bounded, and read by `read_json_untrusted`.

    Give it to every router of an API as `route_class`.

    A route is made when it is first needed: when a request is for it, or the document is made. That takes 2 ms, and a
    process of many servers makes the API of each, of which it asks for few routes.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], *, methods: Collection[str], **options: Any) -> None:
        """As `APIRoute` is made."""
        self.path = path
        self.endpoint = endpoint
        self.methods = {method.upper() for method in methods}
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.dependencies = list(options.get("dependencies") or ())
        self._options: dict[str, Any] | None = options

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.get("_options")
        if options is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        self._options = None
        super().__init__(self.path, self.endpoint, methods=self.methods, **options)
        return getattr(self, name)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own handler, given a request whose body is there."""
        handle = super().get_route_handler()
        checks = [check for one in self.dependencies if (check := _head_checks.get(cast(Any, one.dependency)))]

        takes_slashes = any(re.fullmatch(one.regex, "a/b") for one in self.param_convertors.values())

        async def strictly(request: Request) -> Response:
            if not takes_slashes and b"%2f" in request.scope.get("raw_path", b"").lower():
                # To a proxy in front, and by RFC 3986, that slash is part of a name.
                raise HTTPException(404)
            for check in checks:
                check(request)
            intake: _Intake = request.app.state.intake
            async with intake.body_of(request) as body:
                if self.body_field is not None and body:
                    _require_json_type(request)
                return await handle(_StrictRequest(request, body, intake.bound_of(request.url.path).max_values))

        return strictly


def prepare_app(
    app: FastAPI, body_bounds: Mapping[str, BodyBound] | None = None, *, bodies_bytes: int = BODIES_BYTES
) -> None:
    """Give `app` the error shape of this module and bound its bodies (by path prefix); call it before all routes.

    All bodies of requests that are under way have `bodies_bytes` together.

    Query parameters that a route does not know are refused, as unknown fields of bodies are by their models.
    """
    app.router.route_class = StrictRoute
    app.router.dependencies.append(Depends(_refuse_strange_queries))
    # A redirect would repeat the Host header of the client, and is no JSON.
    app.router.redirect_slashes = False
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_middleware(LastResort)
    app.state.intake = _Intake(body_bounds or {}, bodies_bytes)


_documents: Final[dict[str, dict[str, Any]]] = {}


def document_once(app: FastAPI) -> None:
    """Make the OpenAPI document of `app` once in a process for all apps of its title; call it after all routes.

    For apps that have the same routes whichever server they serve. It takes 0.1 to 0.3 s, for each server in a process.
    """
    document = _documents.get(app.title) or _documents.setdefault(app.title, app.openapi())
    # As FastAPI has its documents replaced. What is only put into `openapi_schema` is made again by versions of it that
    # do not find there the routes of this app.
    app.openapi = lambda: document  # type: ignore[method-assign] # as above
