"""Asking other servers over HTTP: the one client that there is, which believes no answer to be short.

Any server may be the one that answers: at an address that was another server's, or one of an instance that has turned.
So an answer is read as it comes, up to a bound, and is given up beyond it. One that is compressed is refused, since a
few bytes of it may be gigabytes. What all answers under way take together has a bound, too (`actors.http.body_budget`).
Nothing else in a server imports httpx (import-linter has a contract for that).
"""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import httpx
import trio

from batonpass.actors.http.body_budget import BodiesUnderWay
from batonpass.actors.http.strict_json import MAX_JSON_VALUES, read_json_untrusted

__all__ = [
    "MAX_ANSWER_BYTES",
    "BlockingClient",
    "HttpAnswer",
    "HttpClient",
    "HttpFailed",
    "Streamed",
    "believe",
    "trusted_authorities",
]

# The longest that servers have for each other is a sealed parcel: base64url twice makes it 16/9 of its 2 MiB.
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024 + 64 * 1024
# Of all answers that one process reads at one time.
ANSWERS_BYTES: Final = 64 * 1024 * 1024
_HEADERS: Final = {"accept-encoding": "identity"}


class HttpFailed(Exception):
    """There is no answer that can be used; the sentence says why. Whether the request was acted on is not known."""


class HttpAnswer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the server did what it was asked to."""
        return 200 <= self.status < 300

    def json(self, *, most: int = MAX_JSON_VALUES) -> Any:
        """The JSON of its body. Raises `ValueError` if it is none, or has too many values."""
        return read_json_untrusted(self.body, most=most)


class _Believed:
    """The authorities of this process, once they have been read."""

    context: ssl.SSLContext | None = None


def trusted_authorities() -> ssl.SSLContext:
    """The certificate authorities that servers are believed by, for the argument `verify` of every client.

    Read once in a process. A client that is given none reads some 150 of them, in 17 ms of processor time, even if it
    speaks to loopback only.
    """
    if _Believed.context is None:
        _Believed.context = httpx.create_ssl_context(trust_env=False)
    return _Believed.context


def believe(authorities: Path | None) -> None:
    """From now on, believe servers by the certificate authorities of this file alone; None: by those of the system.

    It is for all clients that this process makes later.

    Raises:
        OSError: the file cannot be read; `ssl.SSLError` if it has no certificates.
    """
    _Believed.context = None if authorities is None else ssl.create_default_context(cafile=str(authorities))


class HttpClient:
    """Asks servers, over connections that are kept. Use it as an asynchronous context manager.

    Args:
        timeout_s: for an answer, unless a request says another.
        connections: at one time; requests beyond that wait.
        max_bytes: of one answer.
        all_bytes: of all answers under way.
        transport: in place of the network, for tests.
    """

    def __init__(
        self,
        *,
        timeout_s: float = 10.0,
        connections: int = 100,
        max_bytes: int = MAX_ANSWER_BYTES,
        all_bytes: int = ANSWERS_BYTES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._timeout_s: Final = timeout_s
        self._max_bytes: Final = max_bytes
        self._under_way: Final = BodiesUnderWay(all_bytes)
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections // 2)
        self._http: Final = httpx.AsyncClient(
            timeout=timeout_s,
            limits=limits,
            trust_env=False,
            verify=trusted_authorities(),
            headers=_HEADERS,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        """Use it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> HttpAnswer:
        """Ask one server, and wait for all of its answer.

        Raises:
            HttpFailed: it cannot be reached, does not answer in time, or answers what is too long or compressed.
        """
        me = trio.CancelScope()
        patience_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            with trio.fail_after(patience_s), me:
                async with self._http.stream(method, url, params=params, json=json, headers=headers) as response:
                    _refuse_encoded(response)
                    return HttpAnswer(response.status_code, await self._body_of(response, me))
            raise HttpFailed(
                "what all servers answer is more than this one takes at one time, and this was the slowest"
            )
        except trio.TooSlowError as error:
            raise HttpFailed(f"no answer within {patience_s:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise HttpFailed(_why(error)) from error
        finally:
            self._under_way.end(me)

    async def _body_of(self, response: httpx.Response, me: trio.CancelScope) -> bytes:
        pieces, size = list[bytes](), 0
        # Read on until it ends by itself, as soon as the connection is closed. A generator of httpx that is left in the
        # middle would be the garbage collector's.
        try:
            async for piece in response.aiter_bytes():
                size += len(piece)
                if size > self._max_bytes:
                    await response.aclose()
                    continue
                pieces.append(piece)
                for slowest in self._under_way.grows(me, len(piece)):
                    assert isinstance(slowest, trio.CancelScope)  # noqa: S101 — nothing else is put there
                    slowest.cancel()
        except httpx.HTTPError:
            if size <= self._max_bytes:
                raise
        if size > self._max_bytes:
            raise HttpFailed(_too_long(self._max_bytes))
        return b"".join(pieces)


class Streamed:
    """An answer whose body is read as it comes, and is as long as it likes."""

    def __init__(self, response: httpx.Response) -> None:
        self._response: Final = response

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, as they come."""
        yield from self._response.iter_bytes()


class BlockingClient:
    """Asks one server, for commands that do nothing else meanwhile. Use it as a context manager.

    `max_bytes` bounds answers that are read whole.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, timeout_s: float, max_bytes: int) -> None:
        self._max_bytes: Final = max_bytes
        self._timeout_s: Final = timeout_s
        self._http: Final = httpx.Client(
            base_url=url,
            headers={**_HEADERS, **headers},
            timeout=timeout_s,
            trust_env=False,
            verify=trusted_authorities(),
        )

    def __enter__(self) -> Self:
        """Use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(self, method: str, path: str, **more: Any) -> HttpAnswer:
        """Ask, and wait for all of the answer. Raises `HttpFailed`."""
        with _reaching(), self._http.stream(method, path, **more) as response:
            return HttpAnswer(response.status_code, self._body_of(response))

    @contextmanager
    def stream(self, path: str, *, min_patience_s: float = 0.0, **more: Any) -> Iterator[HttpAnswer | Streamed]:
        """One answer that is read as it comes, or a whole one if it is an error.

        Silence is waited out for `min_patience_s` at least. Raises `HttpFailed`, also inside the block.
        """
        timeout = httpx.Timeout(self._timeout_s, read=max(self._timeout_s, min_patience_s))
        with _reaching(), self._http.stream("GET", path, timeout=timeout, **more) as response:
            if response.is_success:
                _refuse_encoded(response)
                yield Streamed(response)
            else:
                yield HttpAnswer(response.status_code, self._body_of(response))

    def _body_of(self, response: httpx.Response) -> bytes:
        _refuse_encoded(response)
        pieces, size = list[bytes](), 0
        for piece in response.iter_bytes():
            size += len(piece)
            if size > self._max_bytes:
                raise HttpFailed(_too_long(self._max_bytes))
            pieces.append(piece)
        return b"".join(pieces)


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise HttpFailed(_why(error)) from error


def _refuse_encoded(response: httpx.Response) -> None:
    """An answer that is compressed was not asked for, and might be of any size."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() not in ("identity", ""):
        raise HttpFailed(f"the answer is encoded as {encoding!r:.40}, which was not asked for")


def _too_long(max_bytes: int) -> str:
    return f"the answer is longer than {max_bytes} bytes"


def _why(error: Exception) -> str:
    """Its name, and its sentence or that of the first of its causes that has one: httpx has none of its own for TLS."""
    cause: BaseException | None = error
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__
    name = type(error).__name__
    return name if cause is None else f"{name}: {cause}"
