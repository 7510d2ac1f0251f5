"""Places of members: what a kernel does not permit is said and not tried."""

import shutil
from pathlib import Path
from random import Random

import pytest

from batonpass.scenarios.chaos.network import Loopback
from batonpass.scenarios.chaos.privacy import Permissions, enter_private_namespaces
from batonpass.scenarios.chaos.storage import PlainDisks
from batonpass.scenarios.chaos.tools import ToolFailed, missing_tools, run_tool
from batonpass.scenarios.cluster.ports import PortAllocator


async def test_members_on_loopback_have_ports_of_their_own_and_need_no_prefix() -> None:
    with PortAllocator(Random(5)) as ports:
        network = Loopback(ports)
        for name in ("m1", "m2"):
            await network.plug_in(name)
        assert network.address("m1")[0] == network.address("m2")[0] == "127.0.0.1"
        assert network.address("m1") != network.address("m2")
        assert network.prefix("m1") == ()
        await network.unplug("m1")


async def test_files_are_set_aside_on_the_same_disk_and_forgotten(tmp_path: Path) -> None:
    disks = PlainDisks(tmp_path)
    await disks.add("m1")
    disks.directory("m1").mkdir()
    (disks.directory("m1") / "journal").write_text("damaged")

    aside = disks.set_aside("m1", 7)
    assert (aside / "journal").read_text() == "damaged"
    assert not disks.directory("m1").exists()
    disks.forget(aside)
    assert list(disks.disk("m1").iterdir()) == []
    await disks.remove("m1")
    assert not disks.disk("m1").exists()


def test_nothing_is_entered_for_kinds_that_need_nothing() -> None:
    before = Path("/proc/self/ns/net").readlink()
    assert enter_private_namespaces(network=False, images=False) == Permissions(None, None)
    assert Path("/proc/self/ns/net").readlink() == before


def test_where_nothing_can_be_entered_the_reason_is_told_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    before = Path("/proc/self/ns/net").readlink()

    permissions = enter_private_namespaces(network=True, images=True)
    assert permissions.no_network == "namespaces are not permitted here (unshare: Operation not permitted)"
    assert permissions.no_images == permissions.no_network
    monkeypatch.setenv("PATH", "/nowhere")
    assert "unshare (util-linux) cannot be run" in str(enter_private_namespaces(network=True, images=False).no_network)
    assert Path("/proc/self/ns/net").readlink() == before


async def test_a_tool_that_refuses_is_quoted() -> None:
    with pytest.raises(ToolFailed, match=r"`cp /nonexistent /elsewhere` ended with status 1: cp: .*nonexistent"):
        await run_tool("cp", "/nonexistent", "/elsewhere")


async def test_a_tool_that_is_not_there_is_named() -> None:
    with pytest.raises(ToolFailed, match="cannot run no-such-tool: No such file"):
        await run_tool("no-such-tool")


def test_missing_tools_are_named_with_the_packages_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool in ("ip", "mkfs.ext4") else f"/usr/bin/{tool}")

    assert missing_tools(["mount", "cp"]) is None
    assert missing_tools(["ip", "mount", "mkfs.ext4"]) == "ip, mkfs.ext4 not found; install e2fsprogs, iproute2"
