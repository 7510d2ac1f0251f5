"""The operator's right over HTTP: a bearer token that is no other's, from a file that the configuration names."""

import secrets
from collections.abc import Awaitable, Callable

from fastapi.security import HTTPBearer

from batonpass.actors.http.app import ApiError, bearer_access
from batonpass.actors.http.callers import Caller

__all__ = ["operator_access"]

_operator = HTTPBearer(
    auto_error=False,
    scheme_name="Operator",
    description="the operator token, for changing members and for looking into actors",
)


def operator_access(token: bytes | None) -> Callable[..., Awaitable[None]]:
    """A dependency that lets only holders of the operator token through; no caller, if there is none."""

    def check(given: str | None) -> None:
        if token is None:
            text = "this server lets no operator in: its configuration names no operator_token_file"
            raise ApiError(403, "no_operator", text)
        if given is None:
            raise ApiError(401, "no_token", "this needs the operator token: send 'Authorization: Bearer TOKEN'")
        if not secrets.compare_digest(given.encode("utf-8", "replace"), token):
            raise ApiError(403, "wrong_token", "this is not the operator token of this instance")

    return bearer_access(Caller.OPERATOR, _operator, check)
