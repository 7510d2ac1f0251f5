"""What a client asks homeservers, over REST: where an entity is simulated, and at which door its server is entered."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
import httpx

from batonpass.authority.names import instance_of

__all__ = ["HomeDirectory", "HomeFailure"]

REQUEST_TIMEOUT_S: Final = 5.0
DOOR_FRESH_S: Final = 5.0
DOOR_PATH: Final = "/v1/local/door"


class HomeFailure(Exception):
    """Home refused, with a stable `code`, or did not answer: `unreachable`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code: Final = code


class HomeDirectory:
    """The homeservers of one or several instances.

    Args:
        urls: the REST addresses of the members of each instance that the client knows.
    """

    def __init__(self, urls: Mapping[str, Sequence[str]]) -> None:
        self._urls: Final = {instance: list(addresses) for instance, addresses in urls.items()}
        self._http: Final = httpx.AsyncClient(trust_env=False, timeout=REQUEST_TIMEOUT_S)
        self._doors: Final[dict[str, tuple[float, str]]] = {}

    @classmethod
    async def find(cls, url: str) -> "HomeDirectory":
        """The instance of the homeserver at this address.

        Raises:
            HomeFailure: there is no homeserver.
        """
        made = cls({})
        try:
            base = url.rstrip("/")
            instance = str((await made._ask(base + "/v1/cluster"))["instance"])
            made._urls[instance] = [base]
            rows = await made._get(instance, "/v1/servers")
            others = [str(row["rest_url"]) for row in rows if row["role"] == "homeserver"]
            made._urls[instance] += [each for each in others if each != base]
        except (KeyError, TypeError) as error:
            raise HomeFailure("unreachable", f"there is no homeserver at {url}") from error
        return made

    @property
    def instances(self) -> Sequence[str]:
        """The instances whose homeservers are known."""
        return list(self._urls)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def entity(self, name: str) -> Mapping[str, Any]:
        """The record of an entity: `authority`, `owner`, `owner_rev` and what else docs/rest.md names.

        Raises:
            HomeFailure: there is none (`not_found`), or home does not answer.
        """
        record: Mapping[str, Any] = await self._get(instance_of(name), f"/v1/entities/{name}")
        return record

    async def simservers(self, instance: str) -> list[str]:
        """The names of the simulation servers of an instance. Raises HomeFailure."""
        rows = await self._get(instance, "/v1/servers")
        return [row["name"] for row in rows if row.get("role") == "simserver"]

    async def door_of(self, server: str) -> str:
        """Where clients enter a simulation server; empty if that is not known now. Raises HomeFailure."""
        known = self._doors.get(server)
        if known is not None and anyio.current_time() < known[0]:
            return known[1]
        row = await self._get(instance_of(server), f"/v1/servers/{server}")
        answer = await self._ask(str(row["rest_url"]) + DOOR_PATH)
        url = str(answer.get("url", ""))
        self._doors[server] = anyio.current_time() + DOOR_FRESH_S, url
        return url

    def hint(self, server: str, url: str) -> None:
        """Another server says where this one's door is."""
        self._doors[server] = anyio.current_time() + DOOR_FRESH_S, url

    def doubt(self, server: str) -> None:
        """A door did not open: ask anew where it is."""
        self._doors.pop(server, None)

    async def _get(self, instance: str, path: str) -> Any:
        addresses = self._urls.get(instance)
        if not addresses:
            raise HomeFailure("unknown_instance", f"no homeserver of {instance} is known")
        problem = HomeFailure("unreachable", f"{instance} has no address")
        for url in list(addresses):
            try:
                return await self._ask(url + path)
            except HomeFailure as failure:
                problem = failure
                if failure.code != "unreachable":
                    raise
                with suppress(ValueError):
                    addresses.remove(url)
                    addresses.append(url)
        raise problem

    async def _ask(self, url: str) -> Any:
        try:
            answer = await self._http.get(url)
            data = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise HomeFailure("unreachable", f"{url}: {type(error).__name__}") from error
        if answer.is_success:
            return data
        said = data if isinstance(data, dict) else {}
        code = "unreachable" if answer.status_code >= 500 else str(said.get("code", ""))
        raise HomeFailure(code, str(said.get("message", "")))
