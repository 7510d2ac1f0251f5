"""From the head of a request to the scope of an application (ASGI 3), and back to the head of its answer. No I/O."""

from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import h11

__all__ = ["ASKED_BY_HEAD", "problem_of_head", "response_of", "scope_of"]

ASKED_BY_HEAD: Final = "batonpass.asked_by_head"
"""Among the extensions of a scope: the method of the request is HEAD."""

_METHOD_CHARS: Final = 32


def problem_of_head(request: h11.Request, target_bytes: int) -> tuple[int, str, str] | None:
    """Why a request cannot be passed on to an application: status, code and sentence; None if it can."""
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
    return None


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
