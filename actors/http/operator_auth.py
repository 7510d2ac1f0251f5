"""The operator's right over HTTP: a bearer token with the role operator."""

from collections.abc import Awaitable, Callable
from functools import partial

from fastapi.security import HTTPBearer

from batonpass.actors.http.app import bearer_access
from batonpass.actors.http.callers import Caller
from batonpass.actors.http.tokens import TokenGate

__all__ = ["operator_access"]

_operator = HTTPBearer(
    auto_error=False,
    scheme_name="Operator",
    description="a token of the role operator, for changing members and for looking into actors",
)


def operator_access(tokens: TokenGate) -> Callable[..., Awaitable[None]]:
    """A dependency that lets only holders of the role operator through."""
    return bearer_access(Caller.OPERATOR, _operator, partial(TokenGate.let_in, tokens, caller=Caller.OPERATOR))
