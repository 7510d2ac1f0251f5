"""Which requests the tokens of clients let in: the one place that turns a bearer token into what its holder may do.

A token is signed by the operator's issuer (`crypto.access_tokens`). For one release a server also takes the two
secrets that its configuration names, `client_token_file` and `operator_token_file`: who has one of them has the role
server, or operator.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import Request

from batonpass.actors.http.app import ApiError, bearer_token
from batonpass.actors.http.callers import ROLES, Caller
from batonpass.crypto import key_files
from batonpass.crypto.access_tokens import AccessClaims, TokenRefused, TokenRole, TrustedIssuer
from batonpass.crypto.errors import CryptoError, KeyFileError

__all__ = ["ACCESS", "MAX_ISSUER_BYTES", "Access", "TokenGate"]

_log = logging.getLogger("batonpass.actors.http.tokens")

ACCESS: Final = "batonpass.access"
"""In the scope of a request that a token let in: its `Access`. Nothing of a request over HTTP gets there."""
MAX_ISSUER_BYTES: Final = 256 * 1024
# RFC 6750, section 3.1, has 401 for all of these; who shows another instance's token gets no further with a new one.
_FORBIDDEN: Final = frozenset({"wrong_token", "wrong_issuer", "wrong_audience"})


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks, and what that may do; `claims` are None for one of the two secrets."""

    role: TokenRole
    subject: str
    claims: AccessClaims | None = None


class TokenGate:
    """What one server believes.

    Args:
        audience: of the tokens that it takes.
        now_s: the Unix time.
        issuer_file: what `TrustedIssuer.to_json` wrote, read again when it is another one; None without an issuer.
        client_token: the secret of `client_token_file`, if there is one; `operator_token` that of the other.
    """

    def __init__(
        self,
        audience: str,
        now_s: Callable[[], float],
        *,
        issuer_file: Path | None = None,
        client_token: bytes | None = None,
        operator_token: bytes | None = None,
    ) -> None:
        self._audience: Final = audience
        self._now_s: Final = now_s
        self._issuer_file: Final = issuer_file
        self._secrets: Final = [
            (secret, role)
            for secret, role in ((client_token, TokenRole.SERVER), (operator_token, TokenRole.OPERATOR))
            if secret is not None
        ]
        self._seen: tuple[int, ...] = ()
        self._issuer: TrustedIssuer | None = None

    def let_in(self, request: Request, caller: Caller) -> Access:
        """Who asks, if the token of the request lets it do what takes `caller`; also put into its scope.

        Raises:
            ApiError: `no_operator`, `no_token`, `missing_right` or `out_of_scope`; what `access` raises.
        """
        roles = ROLES.get(caller, frozenset())
        wanted = " or ".join(sorted(roles))
        if self._issuer_file is None and not any(role in roles for _, role in self._secrets):
            text = f"this server lets no {wanted} in: its configuration names no token_issuer_file"
            raise ApiError(403, "no_operator", text)
        given = bearer_token(request)
        if given is None:
            text = f"this needs a token of the role {wanted}: send 'Authorization: Bearer TOKEN'"
            raise ApiError(401, "no_token", text)
        access = self.access(given)
        if access.role not in roles:
            text = f"the token of {access.subject} has the role {access.role}, and this takes {wanted}"
            raise ApiError(403, "missing_right", text, access.role.value)
        if access.claims is not None and not _is_in_scope(request, access.claims):
            text = f"the scope of the token is {' '.join(access.claims.scope)}, and this is another path"
            raise ApiError(403, "out_of_scope", text, request.url.path)
        request.scope[ACCESS] = access
        return access

    def access(self, given: str) -> Access:
        """Whose token this is.

        Raises:
            ApiError: what `TrustedIssuer.check_untrusted` says.
        """
        written = given.encode("utf-8", "replace")
        for secret, role in self._secrets:
            if secrets.compare_digest(written, secret):
                return Access(role, role.value)
        issuer = self._believed()
        if issuer is None:
            raise ApiError(403, "wrong_token", "this is no token of this instance")
        try:
            claims = issuer.check_untrusted(given, self._audience, self._now_s())
        except TokenRefused as refused:
            raise ApiError(403 if refused.code in _FORBIDDEN else 401, refused.code, str(refused)) from refused
        return Access(claims.role, claims.subject, claims)

    def _believed(self) -> TrustedIssuer | None:
        """The issuer as its file says now; None where it cannot be read, so that nobody is believed."""
        if self._issuer_file is None:
            return None
        try:
            status = self._issuer_file.stat()
            seen = status.st_mtime_ns, status.st_ino, status.st_size
            if seen != self._seen:
                text = key_files.read_private(self._issuer_file, max_bytes=MAX_ISSUER_BYTES)
                self._issuer, self._seen = TrustedIssuer.from_json_untrusted(text), seen
        except (OSError, KeyFileError, CryptoError) as error:
            if self._issuer is not None or not self._seen:
                _log.warning("no token is believed until this can be read: %s: %s", self._issuer_file, error)
            self._issuer, self._seen = None, (0,)
        return self._issuer


def _is_in_scope(request: Request, claims: AccessClaims) -> bool:
    # A slash that is written as %2F is part of a name, and would look like one between two.
    has_slashes_in_names = b"%2f" in request.scope.get("raw_path", b"").lower()
    return not claims.scope or (not has_slashes_in_names and claims.covers(request.url.path))
