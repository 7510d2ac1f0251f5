"""What a process needs to know to keep an instance's tree in etcd."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["EtcdConfig"]


@dataclass(frozen=True)
class EtcdConfig:
    """Where etcd is, and which instance's tree is kept there.

    `endpoints` are the client URLs of the cluster's members; one is used at a time and another when it fails. `name`
    is this process, unique among those that share the instance. Limits are etcd's own (`--max-txn-ops`,
    `--max-request-bytes`) and must not be above what its members were started with.
    """

    kind: str
    instance: str
    name: str
    endpoints: tuple[str, ...]
    root: str = "/batonpass"
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    user: str | None = None
    password: str | None = None
    max_operations: int = 128
    max_request_bytes: int = 1_572_864
    request_timeout_s: float = 2.0
    connect_timeout_s: float = 1.0
    # How often an idle process makes sure that etcd answers and that its watch is alive.
    pulse_s: float = 1.0

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("etcd needs at least one endpoint, such as http://127.0.0.1:2379")
        for endpoint in self.endpoints:
            if not endpoint.startswith(("http://", "https://")):
                raise ValueError(f"the etcd endpoint {endpoint!r} is no http:// or https:// URL")
        if (self.user is None) != (self.password is None):
            raise ValueError("etcd's user and password go together: give both or none")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("etcd's client certificate and its key go together: give both or none")
        if self.max_operations < 8 or self.max_request_bytes < 65_536:
            raise ValueError("etcd's limits must allow at least 8 operations and 65536 bytes in a request")

    def __repr__(self) -> str:
        return f"EtcdConfig({self.kind}/{self.instance}, {self.name}, {self.endpoints}, root={self.root!r})"
