"""docs/reference/formats.md has the version of every format, and what can talk to what: it is made of the constants.

The table is written anew by

    python -m tests.test_formats
"""

import ast
import importlib
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "formats.md"
BEGIN, END = "<!-- formats table -->\n", "<!-- end of formats table -->"
PACKAGES: Final = ("actors", "authority", "crypto", "homeserver", "scenarios", "simserver", "tree")


class Format(NamedTuple):
    """A format: where its number is, and which other numbers this release understands."""

    area: str
    what: str
    module: str
    constant: str
    rule: str
    reads: str = ""
    """The constants of the same module, or numbers, that this release reads besides."""


FORMATS: Final = (
    Format(
        "wire", "messages between servers", "authority.protocol_version", "PROTOCOL_VERSION",
        "all servers of an instance: equal; another is refused (`other_release`). Instances tell each other no number",
    ),
    Format(
        "wire", "handshake of the link", "crypto.session", "VERSION",
        "both ends: equal; a handshake of another version is dropped",
    ),
    Format(
        "wire", "frames of actors on other nodes", "actors.remote.frames", "VERSION",
        "both nodes: equal; another opens no connection",
    ),
    Format(
        "wire", "the players' door", "authority.wire.door", "DOOR_VERSION",
        "the server takes any client whose `hello` has a version that the server offers", "1, 2",
    ),
    Format(
        "wire", "the homeservers' door", "authority.wire.home_door", "HOME_DOOR_VERSION",
        "client and server: equal; it is in the WebSocket subprotocol, and another is 400 `other_subprotocol`",
    ),
    Format(
        "wire", "datagrams of shows", "simserver.sync.followers.datagrams", "VERSION",
        "all nodes of a show: equal; other datagrams are dropped",
    ),
    Format(
        "wire", "sealed datagrams of shows", "simserver.sync.followers.sealing", "VERSION",
        "all nodes of a show: equal; other datagrams are dropped",
    ),
    Format(
        "log", "replication between homeservers", "tree.net.transport", "PROTOCOL_VERSION",
        "all homeservers of an instance: equal; another does not connect",
    ),
    Format(
        "log", "procedures of the log", "authority.procedures.table", "MACHINE_VERSION",
        "all homeservers of an instance: equal; another does not connect (`wrong_machine`). "
        "The log of an earlier release is read, [within limits](operations.md#upgrading-homeservers)",
    ),
    Format(
        "log", "replicated state", "tree.machine.state", "FORMAT",
        "read by this release and later ones; an earlier release does not read it", "1, 2",
    ),
    Format(
        "disk", "journal", "tree.disk.batches", "JOURNAL_VERSION",
        "read by this release and later ones; an earlier release does not read it", "EARLIER_JOURNAL_VERSION",
    ),
    Format("disk", "mark of the journal", "tree.disk.journal_mark", "MARK_VERSION", "read by equal versions only"),
    Format(
        "disk", "snapshot", "tree.disk.snapshot", "SNAPSHOT_VERSION",
        "read by this release and later ones; an earlier release does not read it", "EARLIER_SNAPSHOT_VERSION",
    ),
    Format("disk", "tree in etcd", "tree.etcd.mirror", "FORMAT", "read by equal versions only"),
    Format("disk", "export of the tree", "tree.store.export", "FORMAT_VERSION", "read by equal versions only"),
    Format("disk", "backup of a homeserver", "scenarios.cli.backups", "BACKUP_FORMAT", "read by equal versions only"),
    Format("disk", "directory of `baton up`", "scenarios.cluster.blueprint", "FORMAT", "read by equal versions only"),
    Format(
        "disk", "state of an event stream", "simserver.sync.events.stream", "STREAM_FORMAT",
        "read by equal versions only; it is also what a hand-over carries",
    ),
    Format(
        "disk", "recording of an event stream", "simserver.sync.lockstep.recording", "VERSION",
        "read by equal versions only",
    ),
)  # fmt: skip

# Names that end alike and are no number of a format of ours.
NO_FORMATS: Final = {
    ("actors/http/websocket_handshake.py", "_VERSION"): "of WebSockets (RFC 6455)",
    ("scenarios/bench/comparison.py", "SCHEMA_VERSION"): "of a report, which only people read",
    ("scenarios/bench/tree/report.py", "SCHEMA_VERSION"): "of a report, which only people read",
    ("tree/raft/raft_ports.py", "PROVED_VERSION"): "of PySyncObj, for which the fence was proved",
    ("tree/store/changes.py", "_PAYLOAD_VERSION"): "a key of a row",
}


def value_of(module: str, constant: str) -> int:
    number = getattr(importlib.import_module(f"batonpass.{module}"), constant)
    assert isinstance(number, int)
    return number


def also_read(of: Format) -> str:
    if not of.reads or of.reads[0].isdigit():
        return of.reads or "–"
    return ", ".join(str(value_of(of.module, name)) for name in of.reads.split(", "))


def table() -> str:
    lines = ["| | format | version | also read | what can talk to what | constant |", "|---|---|---|---|---|---|"]
    for one in FORMATS:
        number, place = value_of(one.module, one.constant), f"`{one.module}.{one.constant}`"
        lines.append(f"| {one.area} | {one.what} | {number} | {also_read(one)} | {one.rule} | {place} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_formats_is_made_of_the_constants() -> None:
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written == table()


def constants_like_a_version() -> set[tuple[str, str]]:
    """Where a module of ours assigns a name that says that it numbers a format."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                names = {target.id for target in targets if isinstance(target, ast.Name)}
                for name in names:
                    if name.endswith(("VERSION", "FORMAT")) and not name.lstrip("_").startswith(("MAX_", "EARLIER_")):
                        found.add((str(path.relative_to(ROOT)), name))
    return found


def test_every_constant_that_numbers_a_format_is_in_the_table() -> None:
    listed = {(one.module.replace(".", "/") + ".py", one.constant) for one in FORMATS}
    known = listed | set(NO_FORMATS) | {("tree/store/export.py", "FORMAT")}  # the name of the format beside its number
    assert constants_like_a_version() == known


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.module)
def test_a_number_of_a_format_is_one_constant_and_no_alias(one: Format) -> None:
    source = (ROOT / (one.module.replace(".", "/") + ".py")).read_text(encoding="utf-8")
    assert (
        source.count(f"\n{one.constant}: Final = {value_of(one.module, one.constant)}\n")
        + source.count(f"\n{one.constant} = {value_of(one.module, one.constant)}\n")
        == 1
    )


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")
