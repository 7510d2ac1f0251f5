"""Two operating system processes, two sockets, keys and all: and one of them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from batonpass.actors import Exit, ServiceSpec, System
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.remote import Distribution, DistributionSettings, NodeDown
from batonpass.crypto.key_store import KeyStore
from tests.actors.remote.far_node import TICK_S, UNREACHABLE_AFTER_S, Keys
from tests.actors.servers import Recorder, Watcher

ROOT = Path(__file__).parents[3]
SLACK_S = 120.0
"""Other work on the machine may delay what is due; not being told at all takes for ever."""


@contextmanager
def far_node(directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], tuple[str, int]]]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.actors.remote.far_node",
            *("far", str(directory / "far"), "near", str(directory / "near")),
        ],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        host, port = process.stdout.readline().split()
        yield process, (host.decode(), int(port))
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Book:
    def __init__(self) -> None:
        self.addresses: dict[str, tuple[str, int]] = {}

    async def address_of(self, name: str) -> tuple[str, int] | None:
        return self.addresses.get(name)


async def test_two_processes_talk_and_when_one_is_killed_the_other_is_told(tmp_path: Path) -> None:
    near_identity = KeyStore(tmp_path / "near").load_or_create()
    far_identity = KeyStore(tmp_path / "far").load_or_create()
    keys = Keys(near=near_identity.public, far=far_identity.public)
    link = LinkEndpoint("near", near_identity, keys, unreachable_after_s=UNREACHABLE_AFTER_S)
    book = Book()
    outcomes: list[Exit] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(link.serve)
        async with System.open("near") as system:
            distribution = Distribution(system, link, book, settings=DistributionSettings(tick_s=TICK_S))
            await system.start_child(ServiceSpec("distribution", distribution.serve))
            mine = await system.start(Recorder)
            recorder = system.remote("far").named("recorder")
            with far_node(tmp_path) as (process, address):
                book.addresses["far"] = address
                for number in range(500):
                    recorder.cast(number)
                recorder.cast(mine)
                with trio.fail_after(SLACK_S):
                    seen = await recorder.call("all")
                assert [entry[1] for entry in seen] == [*range(500), mine]
                assert seen[-1][1] is mine

                ref = await recorder.lookup()
                assert ref is not None
                watcher = await system.start(Watcher)
                watcher.cast(ref)

                failed = trio.Event()

                async def wait_for_ever() -> None:
                    with pytest.raises(Exit) as caught:
                        await system.remote("far").named("waiting").call("anything", timeout_s=None)
                    outcomes.append(caught.value)
                    failed.set()

                nursery.start_soon(wait_for_ever)
                await trio.sleep(3 * TICK_S)  # nothing but ticks
                os.kill(process.pid, signal.SIGKILL)
                killed_s = trio.current_time()
                with trio.fail_after(TICK_S + UNREACHABLE_AFTER_S + SLACK_S):
                    assert await ref.exited() == "noconnection"
                assert trio.current_time() - killed_s >= UNREACHABLE_AFTER_S / 2  # not by a goodbye
            assert [down.reason for down in await watcher.call("all")] == ["noconnection"]
            with trio.fail_after(SLACK_S):
                await failed.wait()
            assert [type(error) for error in outcomes] == [NodeDown]
            with far_node(tmp_path) as (_, address):
                book.addresses["far"] = address
                with trio.fail_after(SLACK_S):
                    # The link may need a moment to find out that the peer is elsewhere.
                    while True:
                        try:
                            assert await recorder.call("all") == []
                            break
                        except NodeDown:
                            continue
                    with pytest.raises(Exit):
                        await ref.call("all")
                assert not ref.alive
        nursery.cancel_scope.cancel()
