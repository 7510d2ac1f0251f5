"""A client of etcd's HTTP/JSON gateway on trio: ranges, guarded transactions and watches, over several endpoints.

One endpoint is used until it fails; then the next one. Every failure says what may have happened, because that is what
a caller must know. It is `NotSent` (nothing), `FateUnknown` (perhaps it was done), or `RefusedByEtcd` (etcd said no).
"""

import json
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NoReturn

import trio

from batonpass.tree.etcd.config import EtcdConfig
from batonpass.tree.etcd.http import AnswerTooBig, Broken, HttpServer, NotConnected, Response
from batonpass.tree.etcd.wire import (
    EtcdCompare,
    EtcdPut,
    Failure,
    Lines,
    MalformedAnswer,
    Operation,
    Ranged,
    TxnAnswer,
    Watched,
    read_failure_untrusted,
    read_leader_untrusted,
    read_lease_untrusted,
    read_members_untrusted,
    read_range_untrusted,
    read_token_untrusted,
    read_txn_untrusted,
    read_watch_untrusted,
    request_authenticate,
    request_for_lease,
    request_lease,
    request_range,
    request_txn,
    request_watch,
)

__all__ = [
    "AnswerTooBig",
    "EtcdClient",
    "EtcdForbids",
    "EtcdFull",
    "EtcdWatch",
    "FateUnknown",
    "NotSent",
    "RefusedByEtcd",
    "RevisionCompacted",
]

log = logging.getLogger("batonpass.tree.etcd")

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_MAX_FAILURE_BYTES: Final = 64 * 1024

# gRPC status codes (https://grpc.io/docs/guides/status-codes/) with which etcd says that a request was not carried out.
_INVALID_ARGUMENT: Final = 3
_EXHAUSTED: Final = 8
_OUT_OF_RANGE: Final = 11
_UNAUTHENTICATED: Final = 16
_REFUSALS: Final = frozenset({_INVALID_ARGUMENT, 5, 7, _EXHAUSTED, 9, _OUT_OF_RANGE, 12, _UNAUTHENTICATED})
_FORBIDDEN: Final = frozenset({7, _UNAUTHENTICATED})
# Codes of other things, with which etcd says that it does not know this user, or knows no users at all.
_ABOUT_USERS: Final = (
    "authentication failed",
    "user name is empty",
    "user name not found",
    "authentication is not enabled",
)
_INVALID_AUTH: Final = "invalid auth token"
_OLD_AUTHENTICATION: Final = "revision of auth store is old"


class NotSent(Exception):
    """The request did not reach etcd, or etcd had no room for it. Nothing was done; another time it may work."""


class EtcdFull(NotSent):
    """etcd has no room for it, and says so: nothing is written before people have made room."""


class EtcdForbids(NotSent):
    """etcd does not let this user do it, or does not know the user: nothing is done before people have mended that."""


class FateUnknown(Exception):
    """The request was sent, and no answer says whether it was, or will be, carried out."""


class RefusedByEtcd(Exception):
    """etcd will not do this however often it is asked; the sentence is etcd's own. Nothing was done."""


class RevisionCompacted(Exception):
    """etcd does not remember the revision any more that was asked for."""


class EtcdWatch:
    """The messages of one watch, in order, until the connection breaks; an asynchronous iterator.

    etcd refuses the token of a watch in a message that cancels it (3.4, 3.5): the next one has a new token then.
    """

    def __init__(self, response: Response, renew: Callable[[], None]) -> None:
        self._response: Final = response
        self._renew: Final = renew
        self._lines: Final = Lines()
        self._ready: deque[bytes] = deque()

    def __aiter__(self) -> "EtcdWatch":
        return self

    async def __anext__(self) -> Watched:
        """The next message; raises `MalformedAnswer`."""
        while not self._ready:
            try:
                data = await self._response.receive()
            except Broken as error:
                log.info("a watch broke: %s", error)
                data = b""
            if not data:
                raise StopAsyncIteration
            self._ready.extend(self._lines.receive_untrusted(data))
        message = read_watch_untrusted(self._ready.popleft())
        if message.cancelled and any(text in message.reason for text in (_INVALID_AUTH, _OLD_AUTHENTICATION)):
            self._renew()
        return message


class EtcdClient:
    """Requests to one etcd cluster. Use it inside `async with`."""

    def __init__(self, config: EtcdConfig) -> None:
        """Raises `OSError` (of which `ssl.SSLError` is one) if the files of certificates cannot be used."""
        self._config: Final = config
        self._endpoint = 0
        self._token: str | None = None
        # One request for a token at a time: etcd takes a tenth of a second of a processor to compare a password.
        self._authenticating: Final = trio.Lock()
        tls = _tls(config)
        self._servers: Final = {url: HttpServer(url, tls, config.connect_timeout_s) for url in config.endpoints}

    async def __aenter__(self) -> "EtcdClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            for server in self._servers.values():
                await server.close()

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
        """Read a key or a range, linearizably.

        Raises `NotSent`, `FateUnknown`, `RefusedByEtcd`, `RevisionCompacted`, `AnswerTooBig`.
        """
        endpoint = self.endpoint
        body = await self._post("/v3/kv/range", request_range(key, end, revision=revision, limit=limit))
        try:
            return read_range_untrusted(body)
        except MalformedAnswer as error:
            self.avoid(endpoint)
            raise FateUnknown(f"{endpoint}: {error}") from error

    async def txn(self, compare: EtcdCompare, operations: list[Operation]) -> TxnAnswer:
        """Do the operations if the comparison holds. Raises `NotSent`, `FateUnknown`, `RefusedByEtcd`."""
        endpoint = self.endpoint
        body = await self._post("/v3/kv/txn", request_txn(compare, operations))
        try:
            return read_txn_untrusted(body)
        except MalformedAnswer as error:
            self.avoid(endpoint)
            raise FateUnknown(f"{endpoint}: {error}") from error

    async def leader(self) -> tuple[int, int]:
        """The id of the cluster's leader (0: none is known) and the term, as the current endpoint sees them."""
        return read_leader_untrusted(await self._post("/v3/maintenance/status", {}))

    async def members(self) -> dict[int, tuple[str, str]]:
        """The cluster's members by id: name, and the first client URL."""
        return read_members_untrusted(await self._post("/v3/cluster/member/list", {}))

    async def grant_lease(self, seconds: int) -> int:
        """A new lease's id; raises `NotSent`, `FateUnknown`, `RefusedByEtcd`."""
        lease, _ = await self._lease("/v3/lease/grant", request_lease(seconds))
        return lease

    async def renew_lease(self, lease: int) -> bool:
        """Begin its time anew; False if it is gone. Raises as `grant_lease` does."""
        _, seconds = await self._lease("/v3/lease/keepalive", request_for_lease(lease))
        return seconds > 0

    async def revoke_lease(self, lease: int) -> None:
        """End it, with the keys that depend on it. Raises as `grant_lease` does."""
        await self._post("/v3/lease/revoke", request_for_lease(lease))

    async def claim(self, key: bytes, value: bytes, lease: int) -> bool:
        """Write a key that does not exist, for as long as the lease lives; False if it exists. Raises as `txn`."""
        return (await self.txn(EtcdCompare(key, 0), [EtcdPut(key, value, lease)])).succeeded

    async def _lease(self, path: str, request: dict[str, Any]) -> tuple[int, int]:
        endpoint = self.endpoint
        body = await self._post(path, request)
        try:
            return read_lease_untrusted(body)
        except MalformedAnswer as error:
            self.avoid(endpoint)
            raise FateUnknown(f"{endpoint}: {error}") from error

    @asynccontextmanager
    async def watch(self, key: bytes, end: bytes, from_revision: int) -> AsyncIterator[EtcdWatch]:
        """Every change of a range from a revision on. Entering raises what `range` does."""
        endpoint = self.endpoint
        # Without a leader, a member would keep telling nothing: better to be told, and to watch another one.
        headers = [*await self._headers(endpoint), ("grpc-metadata-hasleader", "true")]
        used = self._token
        body = json.dumps(request_watch(key, end, from_revision)).encode()
        try:
            async with self._servers[endpoint].posting("/v3/watch", headers, body) as response:
                if response.status != 200:
                    failure = read_failure_untrusted(response.status, await response.body(_MAX_FAILURE_BYTES))
                    if self._is_renewable(failure, used):
                        raise NotSent(f"{endpoint}: {failure.message}")
                    self._raise_for(endpoint, failure)
                yield EtcdWatch(response, partial(self._renew, used))
        except (NotConnected, Broken) as error:
            self.avoid(endpoint)
            raise NotSent(f"{endpoint}: {error}") from error

    async def _post(self, path: str, request: dict[str, Any]) -> bytes:
        """The body of a successful answer."""
        for attempt in (1, 2):
            endpoint = self.endpoint
            headers = await self._headers(endpoint)
            used = self._token
            status, body = await self._exchange(endpoint, path, request, headers)
            if status == 200:
                return body
            if status == 404:
                raise RefusedByEtcd(f"{endpoint} has no {path}: it needs etcd 3.4 or newer, with its gRPC gateway on")
            failure = read_failure_untrusted(status, body)
            if attempt == 1 and self._is_renewable(failure, used):
                continue
            self._raise_for(endpoint, failure)
        raise AssertionError("unreachable: the second attempt answers or raises")

    def _is_renewable(self, failure: Failure, used: str | None) -> bool:
        """Whether a request was refused for the token that it had, and may have a new one."""
        if used is None or not (failure.code == _UNAUTHENTICATED or _OLD_AUTHENTICATION in failure.message):
            return False
        self._renew(used)
        return True

    def _renew(self, used: str | None) -> None:
        if self._token is used:
            # Else another request that was refused has seen to it.
            self._token = None

    async def _exchange(
        self, endpoint: str, path: str, request: dict[str, Any], headers: list[tuple[str, str]]
    ) -> tuple[int, bytes]:
        """One request, one answer: its HTTP status and body; raises `NotSent`, `FateUnknown`, `AnswerTooBig`."""
        try:
            return await self._servers[endpoint].post(
                path,
                headers,
                json.dumps(request).encode(),
                timeout_s=self._config.request_timeout_s,
                max_bytes=MAX_ANSWER_BYTES,
            )
        except NotConnected as error:
            self.avoid(endpoint)
            raise NotSent(f"{endpoint}: {error}") from error
        except Broken as error:
            self.avoid(endpoint)
            raise FateUnknown(f"{endpoint}: {error}") from error

    async def _headers(self, endpoint: str) -> list[tuple[str, str]]:
        config = self._config
        if config.user is None or config.password is None:
            return []
        async with self._authenticating:
            token = self._token
            if token is None:
                token = self._token = await self._new_token(endpoint, config.user, config.password)
        return [("authorization", token)]

    async def _new_token(self, endpoint: str, user: str, password: str) -> str:
        try:
            request = request_authenticate(user, password)
            status, body = await self._exchange(endpoint, "/v3/auth/authenticate", request, [])
        except FateUnknown as error:
            raise NotSent(str(error)) from error  # the request itself was not sent
        if status != 200:
            self._raise_for(endpoint, read_failure_untrusted(status, body))
        return read_token_untrusted(body)

    def _raise_for(self, endpoint: str, failure: Failure) -> NoReturn:
        sentence = f"{endpoint}: {failure.message}"
        if failure.code == _OUT_OF_RANGE:
            raise RevisionCompacted(sentence)
        if failure.code == _EXHAUSTED:
            raise EtcdFull(sentence)
        if failure.code in _FORBIDDEN or any(text in failure.message for text in (*_ABOUT_USERS, _OLD_AUTHENTICATION)):
            raise EtcdForbids(sentence)
        if failure.code in _REFUSALS:
            raise RefusedByEtcd(sentence)
        self.avoid(endpoint)
        raise FateUnknown(sentence)


def _tls(config: EtcdConfig) -> ssl.SSLContext | None:
    if not any(endpoint.startswith("https://") for endpoint in config.endpoints):
        return None
    context = ssl.create_default_context(cafile=None if config.ca_file is None else str(config.ca_file))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.certificate_file is not None and config.key_file is not None:
        context.load_cert_chain(config.certificate_file, config.key_file)
    return context
