"""Configuration of a homeserver and of a relay, as read from TOML."""

from pathlib import Path

from pydantic import Field

from authority.settings import Address, ConfigError, InstanceName, ServerName, Settings

__all__ = ["ConfigError", "HomeserverConfig", "MemberConfig", "PeerConfig", "RelayConfig"]


class MemberConfig(Settings):
    """One member of this instance: where its Raft listens and where its REST answers."""

    name: ServerName
    host: str = "127.0.0.1"
    raft_port: int = Field(ge=1, le=65535)
    rest_url: str


class PeerConfig(Settings):
    """How to reach another logical instance.

    `urls` are its homeservers (`hops = 1`) or the first relay on the way to it (`hops` = relays + 1).
    """

    instance: InstanceName
    urls: tuple[str, ...] = Field(min_length=1)
    hops: int = Field(default=1, ge=1, le=8)


class HomeserverConfig(Settings):
    """Everything a homeserver needs to know before it starts."""

    name: ServerName
    instance: InstanceName
    directory: Path
    rest: Address = Address()
    link: Address = Address()
    members: tuple[MemberConfig, ...] = Field(min_length=1, max_length=9)
    peers: tuple[PeerConfig, ...] = ()
    raft_secret_file: Path
    join_token_file: Path
    client_token_file: Path
    federation_secret_file: Path
    log_level: str = "INFO"


class RelayConfig(Settings):
    """A relay: it passes sealed messages on towards an instance and can read none of them."""

    name: ServerName
    directory: Path
    rest: Address = Address()
    peers: tuple[PeerConfig, ...] = Field(min_length=1)
    log_level: str = "INFO"
