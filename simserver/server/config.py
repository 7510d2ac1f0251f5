"""Configuration of a simulation server, as read from TOML."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.node.config import (
    Address,
    ConfigError,
    InstanceName,
    LinkAddress,
    RestAddress,
    RotationPeriod,
    ServedSettings,
    ServerUrl,
    TelemetrySettings,
)

__all__ = ["ConfigError", "SimserverConfig"]


class SimserverConfig(ServedSettings):
    """Everything a simulation server needs to know before it starts.

    `world` names the simulation as `package.module:ClassName` (see `simserver.world.api.World`); `world_options` is
    handed to it as it stands.
    """

    FORMER: ClassVar[Mapping[str, str]] = {"copies": "backup_replicas"}

    instance: InstanceName
    directory: Path
    rest: RestAddress = Address()
    # Names under which its HTTP may be asked, beside numeric addresses and localhost; `*` for all.
    allowed_hosts: tuple[str, ...] = ()
    link: LinkAddress = Address()
    home_urls: tuple[ServerUrl, ...] = Field(min_length=1)
    join_token_file: Path
    # Whose tokens operators show (`baton tokens issuer`). Without it, none can look into its actors over HTTP.
    token_issuer_file: Path | None = None
    # Deprecated: a secret that is a token of the role operator, without an end.
    operator_token_file: Path | None = None
    # Keys of this age are replaced by the server itself; 0: never.
    rotate_keys_every_s: RotationPeriod = 0.0
    tick_hz: float = Field(default=20.0, gt=0, le=1000)
    # Of other servers it takes entities up to this number, and none whose encoded state is longer.
    max_entities: int = Field(default=100_000, ge=0)
    max_state_bytes: int = Field(default=MAX_STATE_BYTES, ge=1024, le=MAX_STATE_BYTES)
    # How often a change is copied to backup replicas, and how many servers those are: they take over when this server
    # dies. And how often it is written to the own store, from which a restart resumes. 0 for never.
    copy_interval_s: float = Field(default=0.5, ge=0, le=3600)
    backup_replicas: int = Field(default=1, ge=0, le=8)
    checkpoint_interval_s: float = Field(default=5.0, ge=0, le=3600)
    max_copies_bytes: int = Field(default=512 * 1024 * 1024, ge=1024 * 1024)
    # An entity that has slept for longer has its memory given back, until it is needed; 0 for never.
    passivate_after_s: float = Field(default=120.0, ge=0, le=86_400)
    world: str = "batonpass.simserver.world.demo_balls:Balls"
    world_options: dict[str, Any] = Field(default_factory=dict)
    # Where clients of event streams ask, if the world is that of streams; else nothing listens there. Without it, at a
    # port that the kernel chooses. Pages of which origins may ask; `*` for all. And whether in Beamable's form.
    stream_door: RestAddress | None = None
    stream_origins: tuple[str, ...] = ("*",)
    stream_relay: bool = False
    # The same for members of scenes, if the world is that of scenes. Pages of other origins may not, unless named.
    scene_door: RestAddress | None = None
    scene_origins: tuple[str, ...] = ()
    # Where players and observers connect by WebSockets; without it, at a port that the kernel chooses. Pages of other
    # origins may not, unless named. Whether a client may look on that is no player: only on loopback, if not said.
    # `player_door_url` is what clients are told, where they come by a proxy.
    player_door: RestAddress | None = None
    player_door_url: str | None = Field(default=None, pattern=r"^(wss?|https?)://[!-~]{1,400}$")
    player_origins: tuple[str, ...] = ()
    player_observers: bool | None = None
    telemetry: TelemetrySettings = TelemetrySettings()
