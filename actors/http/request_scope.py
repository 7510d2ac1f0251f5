"""From the head of a request to the scope of an application (ASGI 3), and back to the head of its answer. No I/O."""

import re
from collections.abc import Collection, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import h11

from batonpass.actors.http.allowed_hosts import is_allowed_host

__all__ = ["ASKED_BY_HEAD", "guarded", "problem_of_head", "response_of", "scope_of"]

ASKED_BY_HEAD: Final = "batonpass.asked_by_head"
"""Among the extensions of a scope: the method of the request is HEAD."""

_METHOD_CHARS: Final = 32
_SHOWN_CHARS: Final = 64


_GIVEN_ONCE: Final = frozenset((b"authorization", b"content-type", b"last-event-id", b"origin"))
"""Members of a head of which an application and a proxy in front of it may take different ones."""

_BAD_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def problem_of_head(
    request: h11.Request, target_bytes: int, hosts: Collection[str] = ()
) -> tuple[int, str, str] | None:
    """Why a request cannot be passed on to an application: status, code and sentence; None if it can.

    `hosts` are the names under which this server may be asked (`actors.http.allowed_hosts`).
    """
    if request.http_version not in (b"1.0", b"1.1"):
        version = request.http_version.decode("ascii")
        return 505, "http_version_not_supported", f"this server speaks HTTP/1.1, not HTTP/{version}"
    if len(request.target) > target_bytes:
        return 414, "uri_too_long", f"the request target is longer than {target_bytes} bytes"
    if len(request.method) > _METHOD_CHARS:
        return 501, "not_implemented", f"a method has at most {_METHOD_CHARS} characters"
    names = {name for name, _ in request.headers}
    if b"content-length" in names and b"transfer-encoding" in names:
        # RFC 9112, 6.1: a proxy in front may read another length, and so another next request.
        return 400, "bad_request", "a request has a Content-Length or a Transfer-Encoding, not both"
    given = [name for name, _ in request.headers if name in _GIVEN_ONCE]
    if len(given) > len(set(given)):
        twice = next(name for name in given if given.count(name) > 1).decode("ascii")
        return 400, "bad_request", f"a request has one {twice.title()}, not several"
    if _BAD_PERCENT.search(request.target):
        return 400, "bad_request", "a % in the request target begins a byte of two hexadecimal digits (RFC 3986)"
    return _problem_of_host(request, hosts)


def _problem_of_host(request: h11.Request, hosts: Collection[str]) -> tuple[int, str, str] | None:
    # HTTP/1.0 may lack it, and no browser speaks that. Of 1.1 h11 has seen that there is one.
    given = _authority_of(request.target) or next((value for name, value in request.headers if name == b"host"), None)
    if given is None or is_allowed_host(given.decode("latin-1"), hosts):
        return None
    shown = given.decode("latin-1")[:_SHOWN_CHARS]
    text = (
        f"this server is not asked under the name {shown!r}: ask by its address, or name the host in allowed_hosts of"
        " its configuration"
    )
    return 421, "host_refused", text


def _authority_of(target: bytes) -> bytes | None:
    """Of a target in the absolute form, which counts in place of `Host` (RFC 9112 section 3.2.2); else None."""
    if target.startswith((b"/", b"*")) or b"://" not in target.partition(b"?")[0]:
        return None
    return re.split(rb"[/?]", target.partition(b"://")[2], maxsplit=1)[0]


def scope_of(request: h11.Request, place: str) -> MutableMapping[str, Any]:
    """The ASGI scope of a request from this address; of the port nothing is said, for it would say nothing of the peer.

    HEAD is GET without the body of the answer, which is left out when it is sent. An application in which some GET
    changes something looks for `ASKED_BY_HEAD` among the extensions.
    """
    path, _, query = request.target.partition(b"?")
    if not path.startswith((b"/", b"*")) and b"://" in path:
        # The absolute form, which every server has to accept (RFC 9112 section 3.2.2).
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": request.http_version.decode("ascii"),
        "method": "GET" if request.method == b"HEAD" else request.method.decode("ascii"),
        "scheme": "http",
        "path": unquote(path.decode("ascii"), errors="replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": list(request.headers),
        "client": (place, 0),
        "server": None,
        "extensions": {ASKED_BY_HEAD: {}} if request.method == b"HEAD" else {},
    }


def response_of(status: int, headers: Any) -> h11.Response:
    """The head of an answer, as h11 has it."""
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = ""
    return h11.Response(status_code=status, headers=headers, reason=reason.encode())


_GUARDS: Final = ((b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin"))
"""A browser takes nothing for a script that is none (nosniff), and puts no answer into a page of another origin."""


def guarded(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The members of the head of an answer, with those of `_GUARDS` that the application has not said itself."""
    given = list(headers)
    said = {name.lower() for name, _ in given}
    return given + [guard for guard in _GUARDS if guard[0] not in said]
