"""Configuration of a homeserver and of a relay, as read from TOML."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from batonpass.authority.model.enrolment import (
    MAX_ENTITIES,
    DoorGrant,
    EntityPattern,
    KindPattern,
    PlayerPattern,
    Right,
)
from batonpass.authority.node.config import (
    Address,
    ConfigError,
    InstanceName,
    LinkAddress,
    RestAddress,
    RotationPeriod,
    ServedSettings,
    ServerName,
    ServerUrl,
    Settings,
    TelemetrySettings,
)
from batonpass.authority.placement.policy import Balance

__all__ = [
    "DEFAULT_LEASE_TERM_S",
    "ConfigError",
    "EtcdSettings",
    "HomeserverConfig",
    "MemberConfig",
    "MetadataSettings",
    "OpenEnrolment",
    "PeerConfig",
    "PlacementSettings",
    "RelayConfig",
]

# Longer than it takes to elect a new leader of the log, and for servers that renew to find it, on a busy machine. Short
# enough that players see a pause and not an end.
DEFAULT_LEASE_TERM_S: Final = 6.0


_Finite = Annotated[float, Field(allow_inf_nan=False)]


class MemberConfig(Settings):
    """One member of this instance: where its Raft listens and where its REST answers."""

    name: ServerName
    host: str = "127.0.0.1"
    # 0: it has none, because the instance keeps its rows in etcd.
    raft_port: int = Field(default=0, ge=0, le=65535)
    rest_url: ServerUrl

    @property
    def raft(self) -> str:
        """Where its Raft listens; empty if it has none."""
        return f"{self.host}:{self.raft_port}" if self.raft_port else ""


class PeerConfig(Settings):
    """How to reach another logical instance.

    `urls` are its homeservers (`hops = 1`) or the first relay on the way to it (`hops` = relays + 1).
    """

    instance: InstanceName
    urls: tuple[ServerUrl, ...] = Field(min_length=1)
    hops: int = Field(default=1, ge=1, le=8)


class EtcdSettings(Settings):
    """The etcd cluster that keeps the rows of this instance, and how to be let in.

    The limits must not be above what its members were started with (`--max-txn-ops`, `--max-request-bytes`).
    """

    endpoints: tuple[str, ...] = Field(min_length=1)
    root: str = Field(default="/batonpass", pattern="^/")
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None
    max_operations: int = 128
    max_request_bytes: int = 1_572_864
    request_timeout_s: float = Field(default=2.0, gt=0, le=60)


class MetadataSettings(Settings):
    """Where the replicated rows are kept. All homeservers of an instance must say the same."""

    backend: Literal["raft", "etcd"] = "raft"
    etcd: EtcdSettings | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.backend == "etcd" and self.etcd is None:
            raise ValueError("the backend is etcd: say where, in metadata.etcd.endpoints")
        if self.backend == "raft" and self.etcd is not None:
            raise ValueError('metadata.etcd is given, but the backend is raft: set metadata.backend = "etcd"')
        return self


class PlacementSettings(Settings):
    """Where entities should be; see `authority.placement.policy`. Drains are done whatever it says and does.

    With `balance`, entities are moved from hot to cool servers. `policy` names the function that decides, as
    `package.module:function`. The numbers are those of `authority.placement.policy.Balance`.
    """

    balance: bool = False
    policy: str = "batonpass.authority.placement.policy:relieve"
    hot: _Finite = Balance.hot
    cool: _Finite = Balance.cool
    hot_for_s: _Finite = Balance.hot_for_s
    min_hold_s: _Finite = Balance.min_hold_s
    moves_per_s: _Finite = Balance.moves_per_s
    drain_moves_per_s: _Finite = Balance.drain_moves_per_s
    oscillation_s: _Finite = Balance.oscillation_s

    def limits(self) -> Balance:
        """The numbers as a policy gets them."""
        return Balance(**self.model_dump(exclude={"balance", "policy"}))

    @model_validator(mode="after")
    def _can_be_meant(self) -> Self:
        self.limits()
        return self


class OpenEnrolment(Settings):
    """That players come without an invitation: under which names, and what they may do then (`DoorGrant`)."""

    players: PlayerPattern
    rights: tuple[Right, ...] = DoorGrant().rights
    kinds: tuple[KindPattern, ...] = Field(default=DoorGrant().kinds, max_length=16)
    entities: EntityPattern = DoorGrant().entities
    most_entities: int = Field(default=DoorGrant().most_entities, ge=0, le=MAX_ENTITIES)

    def takes_player(self, player: str) -> bool:
        """Whether one of this name may come."""
        return fnmatchcase(player, self.players)

    def grant(self) -> DoorGrant:
        """What they may do."""
        return DoorGrant(**self.model_dump(exclude={"players"}))


class HomeserverConfig(ServedSettings):
    """Everything a homeserver needs to know before it starts."""

    instance: InstanceName
    directory: Path
    rest: RestAddress = Address()
    # Names under which its HTTP may be asked, beside numeric addresses and localhost; `*` for all.
    allowed_hosts: tuple[str, ...] = ()
    link: LinkAddress = Address()
    members: tuple[MemberConfig, ...] = Field(min_length=1, max_length=9)
    # Start with nothing and wait to be added to a running instance; `members` are then whom to knock at.
    join: bool = False
    peers: tuple[PeerConfig, ...] = ()
    metadata: MetadataSettings = MetadataSettings()
    placement: PlacementSettings = PlacementSettings()
    raft_secret_file: Path | None = None
    join_token_file: Path
    federation_secret_file: Path
    # Whose tokens clients show (`baton tokens issuer`).
    token_issuer_file: Path | None = None
    # Deprecated: secrets that are tokens of the roles server and operator, without an end.
    client_token_file: Path | None = None
    operator_token_file: Path | None = None
    # Keys of this age are replaced by the server itself; 0: never.
    rotate_keys_every_s: RotationPeriod = 0.0
    # How long a simulation server that is silent keeps what it simulates; docs/reference/failover.md has the
    # arithmetic. All homeservers of an instance must say the same.
    lease_term_s: float = Field(default=DEFAULT_LEASE_TERM_S, ge=0.5, le=3600.0)
    # The folder of pages that it hands out at /play/, beside the client for browsers; none, if it is not said.
    pages: Path | None = None
    # Whether everybody who reaches its REST may see the dashboard, the map, and the lists of all entities and
    # transfers. Unless it is said, only on loopback. Else these take the client token.
    dashboard: bool | None = None
    # Whether the dashboard may change anything, with the tokens that people give to it. Unless it is said, only on
    # loopback: elsewhere put TLS before it first.
    dashboard_acts: bool | None = None
    # The door for players (`/v1/play` of `rest`): pages of which other origins may connect, whether observers may, and
    # who may come without an invitation. Unless it is said, observers may on loopback only.
    player_origins: tuple[str, ...] = ()
    player_observers: bool | None = None
    open_enrolment: OpenEnrolment | None = None
    telemetry: TelemetrySettings = TelemetrySettings()

    def opaque_tokens(self) -> dict[str, Path]:
        """The files with secrets that are tokens, by the names of their settings."""
        files = {"client_token_file": self.client_token_file, "operator_token_file": self.operator_token_file}
        return {name: file for name, file in files.items() if file is not None}

    @model_validator(mode="after")
    def _lets_clients_in(self) -> Self:
        if self.token_issuer_file is None and self.client_token_file is None:
            raise ValueError("token_issuer_file is missing: clients are let in by tokens of an issuer")
        return self

    @model_validator(mode="after")
    def _has_what_its_backend_needs(self) -> Self:
        if self.metadata.backend == "raft":
            if self.raft_secret_file is None:
                raise ValueError("raft_secret_file is missing: the members of a Raft know each other by it")
            without = [member.name for member in self.members if not member.raft_port]
            if without:
                raise ValueError(f"raft_port is missing for {', '.join(without)}")
        return self


class RelayConfig(ServedSettings):
    """A relay: it passes sealed messages on towards an instance and can read none of them."""

    directory: Path
    # As of a homeserver.
    allowed_hosts: tuple[str, ...] = ()
    peers: tuple[PeerConfig, ...] = Field(min_length=1)
