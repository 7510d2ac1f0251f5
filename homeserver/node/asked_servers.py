"""What servers say of themselves, asked for in the name of a page, which speaks to this homeserver only.

Their status APIs are asked over HTTP, where the directory has them: `AT_ONCE` at one time, and each for `PATIENCE_S`.
What they answer is checked as anything from elsewhere.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import trio
from pydantic import BaseModel

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.authority.model.records import DirectoryRow

__all__ = ["AskedServers"]

AT_ONCE: Final = 8
PATIENCE_S: Final = 2.0

View = TypeVar("View", bound=BaseModel)


class AskedServers:
    """One homeserver's; `client` asks."""

    def __init__(self, client: HttpClient) -> None:
        self._client: Final = client
        self._limiter: Final = trio.CapacityLimiter(AT_ONCE)

    async def ask(
        self, row: DirectoryRow, path: str, form: type[View], params: Mapping[str, str] | None = None
    ) -> View:
        """What a server answers to a GET.

        Raises:
            ApiError: the server's own refusal; `peer_unreachable` if it does not answer, or not in this form.
        """
        try:
            async with self._limiter:
                answer = await self._client.request("GET", row.rest_url + path, params=params, timeout_s=PATIENCE_S)
            if answer.is_success:
                return form.model_validate(answer.json())
            refusal = answer.json()
            code, text = str(refusal["code"]), str(refusal["message"])
        except (HttpFailed, ValueError, KeyError, TypeError) as error:
            raise ApiError(502, "peer_unreachable", f"{row.name} does not say it: {error}", row.name) from error
        raise ApiError(answer.status, code, f"{row.name}: {text}", row.name)
