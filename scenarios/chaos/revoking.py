"""Taking a simulation server's keys from it, in the ways an operator has (docs/reference/keys.md, *Stolen*)."""

import shutil
from pathlib import Path
from typing import Final

import httpx

from batonpass.actors.http.client import trusted_authorities
from batonpass.crypto.key_store import RING_FILE, KeyStore
from batonpass.crypto.keys import PublicIdentity
from batonpass.scenarios.cluster.cluster import LocalCluster, ProcessRole

__all__ = ["NewKeys", "reset_keys", "revoke_keys"]

_TIMEOUT_S: Final = 30.0
_KEY_FILES: Final = ("*.pem", RING_FILE)


async def revoke_keys(cluster: LocalCluster, server: str) -> None:
    """Have a server that runs revoke its keys and take others; its home instance knows when this returns.

    Raises:
        httpx.HTTPError: it cannot be reached, or refuses.
    """
    info = cluster.server(server)
    async with _operator(info.rest_url, cluster.simserver_operator_token_file(info.instance)) as http:
        shown = (await http.get("/v1/keys")).raise_for_status().json()
        kid = PublicIdentity.from_jwks_untrusted(shown["keys"]).signing_kid
        (await http.post("/v1/keys/revoke", json={"kid": kid})).raise_for_status()


class NewKeys:
    """Keys that its home instance takes for a server's from now on; the server itself does not have them yet."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory

    def install(self, cluster: LocalCluster, server: str) -> None:
        """Put them in the place of those that a server had which does not run, of every generation."""
        place = cluster.server(server).directory / "state" / "keys"
        for pattern in _KEY_FILES:
            for old in place.glob(pattern):
                old.unlink()
            for new in self._directory.glob(pattern):
                shutil.copy2(new, place / new.name)


async def reset_keys(cluster: LocalCluster, server: str, directory: Path) -> NewKeys:
    """Have the home instance revoke a server's keys, which is not asked, and take new ones, made in `directory`.

    Raises:
        httpx.HTTPError: the home instance cannot be reached, or refuses.
    """
    keys = KeyStore(directory).load_or_create().public.to_jwks()["keys"]
    instance = cluster.server(server).instance
    home = next(one for one in cluster.servers if (one.role, one.instance) == (ProcessRole.HOMESERVER, instance))
    async with _operator(home.rest_url, cluster.operator_token_file(instance)) as http:
        body = {"keys": keys, "reason": "stolen, while it handed an entity over"}
        (await http.post(f"/v1/directory/{server}/reset", json=body)).raise_for_status()
    return NewKeys(directory)


def _operator(url: str, token_file: Path) -> httpx.AsyncClient:
    token = token_file.read_text(encoding="utf-8").strip()
    headers = {"authorization": f"Bearer {token}"}
    return httpx.AsyncClient(
        base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False, verify=trusted_authorities()
    )
