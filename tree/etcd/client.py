"""A client of etcd's HTTP/JSON gateway on trio: ranges, guarded transactions and watches, over several endpoints.

One endpoint is used until it fails; then the next one. Every failure says what may have happened, because that is what
a caller must know: `NotSent` (nothing), `FateUnknown` (perhaps it was done), `RefusedByEtcd` (etcd said no).
"""

import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import httpx
import trio

from tree.etcd.config import EtcdConfig
from tree.etcd.wire import (
    Compare,
    Failure,
    Lines,
    MalformedAnswer,
    Operation,
    Ranged,
    TxnAnswer,
    Watched,
    read_failure_untrusted,
    read_range_untrusted,
    read_token_untrusted,
    read_txn_untrusted,
    read_watch_untrusted,
    request_authenticate,
    request_range,
    request_txn,
    request_watch,
)

__all__ = ["AnswerTooBig", "Compacted", "EtcdClient", "FateUnknown", "NotSent", "RefusedByEtcd"]

log = logging.getLogger("tree.etcd")

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024

# gRPC status codes (https://grpc.io/docs/guides/status-codes/) with which etcd says that a request was not carried out.
_INVALID_ARGUMENT: Final = 3
_EXHAUSTED: Final = 8
_OUT_OF_RANGE: Final = 11
_UNAUTHENTICATED: Final = 16
_REFUSALS: Final = frozenset({_INVALID_ARGUMENT, 5, 7, _EXHAUSTED, 9, _OUT_OF_RANGE, 12, _UNAUTHENTICATED})
_OLD_AUTHENTICATION: Final = "revision of auth store is old"


class NotSent(Exception):
    """The request did not reach etcd, or etcd had no room for it. Nothing was done; another time it may work."""


class FateUnknown(Exception):
    """The request was sent, and no answer says whether it was, or will be, carried out."""


class RefusedByEtcd(Exception):
    """etcd will not do this however often it is asked; the sentence is etcd's own. Nothing was done."""


class Compacted(Exception):
    """etcd does not remember the revision any more that was asked for."""


class AnswerTooBig(Exception):
    """The answer has more bytes than this process is willing to hold; ask for less at a time."""


class EtcdClient:
    """Requests to one etcd cluster. Use it inside `async with`."""

    def __init__(self, config: EtcdConfig) -> None:
        """Raises `OSError` or `ssl.SSLError` if the files of certificates cannot be used."""
        self._config: Final = config
        self._endpoint = 0
        self._token: str | None = None
        self._http: Final = httpx.AsyncClient(
            verify=_tls(config),
            trust_env=False,
            timeout=httpx.Timeout(config.request_timeout_s, connect=config.connect_timeout_s),
            headers={"accept-encoding": "identity"},
            limits=httpx.Limits(max_connections=16, max_keepalive_connections=8),
        )

    async def __aenter__(self) -> "EtcdClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            await self._http.aclose()

    @property
    def endpoint(self) -> str:
        """The endpoint that is used now."""
        return self._config.endpoints[self._endpoint]

    def avoid(self, endpoint: str) -> None:
        """Use the next endpoint, unless that has happened already."""
        if endpoint == self.endpoint and len(self._config.endpoints) > 1:
            self._endpoint = (self._endpoint + 1) % len(self._config.endpoints)
            log.warning("%s: etcd endpoint %s does not serve; using %s", self._config.name, endpoint, self.endpoint)

    async def range(
        self,
        key: bytes,
        end: bytes | None = None,
        *,
        revision: int = 0,
        limit: int = 0,
    ) -> Ranged:
        """Read a key or a range, linearizably. Raises `NotSent`, `FateUnknown`, `RefusedByEtcd`, `Compacted`."""
        request = request_range(key, end, revision=revision, limit=limit)
        return read_range_untrusted(await self._post("/v3/kv/range", request))

    async def txn(self, compare: Compare, operations: list[Operation]) -> TxnAnswer:
        """Do the operations if the comparison holds. Raises `NotSent`, `FateUnknown`, `RefusedByEtcd`."""
        body = await self._post("/v3/kv/txn", request_txn(compare, operations))
        try:
            return read_txn_untrusted(body)
        except MalformedAnswer as error:
            raise FateUnknown(str(error)) from error

    async def status(self) -> dict[str, Any]:
        """The member behind the current endpoint, as `/v3/maintenance/status` describes it."""
        body = await self._post("/v3/maintenance/status", {})
        answer: dict[str, Any] = httpx.Response(200, content=body).json()
        return answer

    @asynccontextmanager
    async def watch(self, key: bytes, end: bytes, from_revision: int) -> AsyncIterator[AsyncIterator[Watched]]:
        """Every change of a range from a revision on, until the connection breaks (then the iterator ends).

        The iterator raises `MalformedAnswer`; entering raises what `range` does.
        """
        endpoint = self.endpoint
        headers = await self._headers(endpoint) | {"grpc-metadata-hasleader": "true"}
        request = self._http.build_request(
            "POST",
            f"{endpoint}/v3/watch",
            json=request_watch(key, end, from_revision),
            headers=headers,
            # A watch is silent while nothing happens; whether it lives is found out by whoever waits for a change.
            timeout=httpx.Timeout(None, connect=self._config.connect_timeout_s),
        )
        try:
            response = await self._http.send(request, stream=True)
        except (httpx.HTTPError, OSError) as error:
            self.avoid(endpoint)
            raise NotSent(f"{endpoint}: {_sentence(error)}") from error
        try:
            if not response.is_success:
                self._raise_for(endpoint, read_failure_untrusted(response.status_code, await _bounded_body(response)))
            async with aclosing(_messages(response)) as messages:
                yield messages
        finally:
            with trio.CancelScope(shield=True):
                await response.aclose()

    async def _post(self, path: str, request: dict[str, Any]) -> bytes:
        """The body of a successful answer."""
        for attempt in (1, 2):
            endpoint = self.endpoint
            status, body = await self._exchange(endpoint, path, request, await self._headers(endpoint))
            if status == 200:
                return body
            failure = read_failure_untrusted(status, body)
            expired = failure.code == _UNAUTHENTICATED or _OLD_AUTHENTICATION in failure.message
            if expired and attempt == 1 and self._token is not None:
                self._token = None
                continue
            self._raise_for(endpoint, failure)
        raise AssertionError("unreachable: the second attempt answers or raises")

    async def _exchange(
        self, endpoint: str, path: str, request: dict[str, Any], headers: dict[str, str]
    ) -> tuple[int, bytes]:
        try:
            async with self._http.stream("POST", endpoint + path, json=request, headers=headers) as response:
                return response.status_code, await _bounded_body(response)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            self.avoid(endpoint)
            raise NotSent(f"{endpoint}: {_sentence(error)}") from error
        except (httpx.HTTPError, OSError) as error:
            self.avoid(endpoint)
            raise FateUnknown(f"{endpoint}: {_sentence(error)}") from error

    async def _headers(self, endpoint: str) -> dict[str, str]:
        config = self._config
        if config.user is None or config.password is None:
            return {}
        if self._token is None:
            request = request_authenticate(config.user, config.password)
            try:
                status, body = await self._exchange(endpoint, "/v3/auth/authenticate", request, {})
            except FateUnknown as error:
                raise NotSent(str(error)) from error  # the request itself was not sent
            if status != 200:
                self._raise_for(endpoint, read_failure_untrusted(status, body))
            self._token = read_token_untrusted(body)
        return {"authorization": self._token}

    def _raise_for(self, endpoint: str, failure: Failure) -> None:
        sentence = f"{endpoint}: {failure.message}"
        if failure.code == _OUT_OF_RANGE:
            raise Compacted(sentence)
        if failure.code == _EXHAUSTED:
            raise NotSent(sentence)
        if failure.code in _REFUSALS:
            raise RefusedByEtcd(sentence)
        self.avoid(endpoint)
        raise FateUnknown(sentence)


async def _bounded_body(response: httpx.Response) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_raw():
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise AnswerTooBig(f"{response.url}: the answer has more than {MAX_ANSWER_BYTES} bytes")
        pieces.append(piece)
    return b"".join(pieces)


async def _messages(response: httpx.Response) -> AsyncGenerator[Watched, None]:
    lines = Lines()
    try:
        async for piece in response.aiter_raw():
            for line in lines.receive_untrusted(piece):
                yield read_watch_untrusted(line)
    except (httpx.HTTPError, OSError) as error:
        log.info("a watch broke: %s", _sentence(error))


def _tls(config: EtcdConfig) -> ssl.SSLContext | bool:
    if not any(endpoint.startswith("https://") for endpoint in config.endpoints):
        return False
    context = ssl.create_default_context(cafile=None if config.ca_file is None else str(config.ca_file))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.certificate_file is not None and config.key_file is not None:
        context.load_cert_chain(config.certificate_file, config.key_file)
    return context


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__
