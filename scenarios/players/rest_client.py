"""A client of homeservers' REST API for scenarios: asks whichever member answers, repeats what may be repeated."""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import httpx
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.authority.errors import Reason

__all__ = ["CALL_PATIENCE_S", "SILENT", "ApiFailure", "RestClient", "create_entity"]

REQUEST_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.1
CALL_PATIENCE_S: Final = 20.0
# What cannot be read counts against a run, and a machine with much else to do may let a server stand for seconds.
READ_TRIES: Final = 4
# Why a transfer is refused where a server was silent for too long. It is asked for again, as a new one.
SILENT: Final = frozenset(
    {
        Reason.FREEZE_BUDGET.value,
        Reason.HOME_UNREACHABLE.value,
        Reason.TARGET_DOWN.value,
        Reason.TARGET_FAILED.value,
    }
)
_MOVES: Final = {"transfers": "transfer_id", "groups": "group"}


class ApiFailure(Exception):
    """The API answered with an error; `code` is its stable code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


def _with_id(method: str, path: str, body: Any) -> Any:
    """A request to move something, under an id: the homeserver would choose another one for each repetition."""
    kind = _MOVES.get(path.rpartition("/")[2]) if method == "POST" and isinstance(body, Mapping) else None
    return {kind: secrets.token_hex(12), **body} if kind else body


class RestClient:
    """Talks to the homeservers of several instances; a member that does not answer is passed over for the next.

    Args:
        urls: the members' REST addresses, per instance.
        tokens: the client token, per instance.
        patience_s: for how long a request is repeated while it is not answered, unless it says so itself.
    """

    def __init__(
        self, urls: Mapping[str, list[str]], tokens: Mapping[str, str], patience_s: float = CALL_PATIENCE_S
    ) -> None:
        self._patience_s = patience_s
        self._urls = {instance: list(addresses) for instance, addresses in urls.items()}
        self._tokens = tokens
        self._http = httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=REQUEST_TIMEOUT_S)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def call(
        self,
        instance: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        patience_s: float | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        **params: str,
    ) -> Any:
        """One request to an instance; what must not be done twice has to be idempotent (and is, in this API).

        A member that has not answered after `timeout_s` is given up for the next, or asked again.

        Transfers and groups that come without an id are given one, so that a repetition is no second one.

        Raises:
            ApiFailure: the instance refused (4xx), or did not answer for `patience_s` (code `unreachable`).
        """
        problem, body = "no address", _with_id(method, path, body)
        patience_s = self._patience_s if patience_s is None else patience_s
        with trio.move_on_after(patience_s):
            while True:
                for url in list(self._urls[instance]):
                    try:
                        answer = await self._http.request(
                            method,
                            url + path,
                            json=body,
                            params=params,
                            timeout=timeout_s,
                            headers={"authorization": f"Bearer {self._tokens[instance]}"},
                        )
                        data = answer.json()
                    except (httpx.HTTPError, ValueError) as error:
                        problem = f"{url}: {type(error).__name__}"
                        self._last(instance, url)
                        continue
                    if answer.is_success:
                        return data
                    problem = f"{url}: {data.get('code')}: {data.get('message')}"
                    if answer.status_code < 500:
                        raise ApiFailure(str(data.get("code")), str(data.get("message")))
                    self._last(instance, url)
                await trio.sleep(RETRY_S)
        raise ApiFailure("unreachable", f"{instance} did not answer in {patience_s:g} s ({problem})")

    async def get(self, url: str, **params: str) -> Any:
        """Read from one server, wherever it is; one that is slow is asked again.

        Raises:
            ApiFailure: it refused.
            httpx.HTTPError: it is not there, or did not answer `READ_TRIES` times.
        """
        answer = await self._read(url, params)
        if not answer.is_success:
            data = answer.json()
            raise ApiFailure(str(data.get("code")), str(data.get("message")))
        return answer.json()

    async def _read(self, url: str, params: Mapping[str, str]) -> httpx.Response:
        for _time in range(READ_TRIES - 1):
            with suppress(httpx.TimeoutException):
                return await self._http.get(url, params=params)
        return await self._http.get(url, params=params)

    def _last(self, instance: str, url: str) -> None:
        addresses = self._urls[instance]
        addresses.remove(url)
        addresses.append(url)


async def create_entity(client: RestClient, instance: str, body: Mapping[str, Any], patience_s: float) -> Any:
    """Create an entity: its record. Where its server has no lease for a moment it is asked again; that is one creation.

    Raises:
        ApiFailure: it was refused for another reason, or its server was given nothing for `patience_s`.
    """
    until = trio.current_time() + patience_s
    while trio.current_time() < until:
        try:
            return await client.call(instance, "POST", "/v1/entities", body)
        except ApiFailure as failure:
            if failure.code != Reason.TARGET_DOWN:
                raise
        await trio.sleep(RETRY_S)
    raise ApiFailure(Reason.TARGET_DOWN.value, f"{body['server']} could be given nothing for {patience_s:g} s")
