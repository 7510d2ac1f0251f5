"""A show as servers run it: the machine of a node, its socket for datagrams, and its engine in a thread of its own.

The authority is granted here and never moves, and the key is known: what a server does for that is no part
of a frame.
"""

from collections import Counter
from functools import partial
from typing import Final

import trio

from batonpass.actors.base.clock import Bell, Clock
from batonpass.scenarios.bench.followers.course import ShowShape
from batonpass.scenarios.bench.followers.workers.processes import (
    CONTROLLER,
    HOST,
    FrameNotes,
    NodeAddress,
    NodeLine,
    StateOfFrame,
    run_worker,
)
from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.mailbox import EngineMailbox
from batonpass.simserver.sync.followers.ports import QuitTold
from batonpass.simserver.sync.followers.sealing import GroupSeal
from batonpass.simserver.sync.followers.structs import RenderStreamError, RsError
from batonpass.simserver.sync.shows.node_traffic import NodeTraffic
from batonpass.simserver.sync.shows.nodes import ShowPeer
from batonpass.simserver.sync.shows.own_parts import OwnParts

__all__ = ["main"]

MODULE: Final = "batonpass.scenarios.bench.followers.workers.on_batonpass"
_EPOCH: Final = 1
_NEVER: Final = 1 << 62
_KEY: Final = bytes(range(32))
_AWAIT_MS: Final = 500
_IDLE_S: Final = 0.5


class _ShowNode:
    def __init__(self, number: int, shape: ShowShape) -> None:
        parts = OwnParts({"fan_out": shape.fan_out})
        show = {"rate": (shape.rate, 1), "mode": "state", "fence": "none"}
        self._number: Final = number
        self._public: Final = parts.public
        self._machine: Final = parts.machine(_name(number), show, Clock.monotonic_ns())
        self._bell: Final = Bell()
        self._mailbox: Final = EngineMailbox(parts.thread, Clock.monotonic_ns, self._bell.ring)
        self._traffic: Final = NodeTraffic(
            _name(number), self._mailbox, Clock(), self._bell.ring, Counter(), lambda: True
        )
        self._traffic.machine, self._traffic.seal = self._machine, GroupSeal(_KEY, _EPOCH, number + 1)
        self._notes: Final = FrameNotes()
        self._state: Final = StateOfFrame(shape.state_bytes)

    async def run(self, line: NodeLine) -> None:
        async with trio.open_nursery() as nursery:
            self._traffic.port.bind(HOST)
            nursery.start_soon(self._traffic.port.serve)
            self._begin(line.exchange(NodeAddress(self._traffic.port.address[1], self._public.hex())))
            nursery.start_soon(self._turn)
            async with trio.open_nursery() as engine:
                engine.start_soon(trio.to_thread.run_sync, self._show)
                await trio.lowlevel.wait_readable(line.fileno())
                self._mailbox.put(QuitTold())
            nursery.cancel_scope.cancel()
        self._traffic.port.close()
        line.report(self._notes)

    def _begin(self, addresses: list[NodeAddress]) -> None:
        peers = [ShowPeer(at + 1, HOST, each.port, bytes.fromhex(each.public)) for at, each in enumerate(addresses)]
        self._traffic.knows({_name(at): peer for at, peer in enumerate(peers)})
        now_ns = Clock.monotonic_ns()
        if self._number == CONTROLLER:
            self._machine.granted(_EPOCH, 1, now_ns)
            self._machine.may_send_below(_NEVER)
        else:
            self._machine.follow(_name(CONTROLLER), _EPOCH, now_ns)
        self._traffic.pump()

    # --- the loop, as that of `shows.host`

    async def _turn(self) -> None:
        while True:
            due_ns = self._machine.next_due_ns
            idle_s = _IDLE_S if due_ns is None else max(due_ns - Clock.monotonic_ns(), 0) / 1e9
            await self._bell.wait(min(idle_s, _IDLE_S))
            for act in self._mailbox.take_acts():
                self._machine.submit(act, Clock.monotonic_ns())
            self._traffic.pump()

    # --- the engine, in its thread

    def _show(self) -> None:
        node, is_over = EngineNode(self._mailbox), False
        while not is_over:
            try:
                node.await_frame_data(_AWAIT_MS)
                self._frame(node)
            except RenderStreamError as error:
                is_over = error.code is RsError.QUIT
                if error.code not in {RsError.QUIT, RsError.TIMEOUT}:
                    raise
        node.shutdown()

    def _frame(self, node: EngineNode) -> None:
        if node.is_controller():
            state, at_ns = self._state(node.frame), Clock.monotonic_ns()
            self._notes.note(node.frame, at_ns)
            node.send_follower_data(state)
        else:
            state = node.receive_follower_data()
            self._notes.note(node.frame, Clock.monotonic_ns())
            self._state.check(node.frame, state)


def _name(number: int) -> str:
    return f"alpha.s{number}"


def _node(number: int, shape: ShowShape, line: NodeLine) -> None:
    trio.run(partial(_ShowNode(number, shape).run, line))


def main() -> None:
    """As `side_by_side` asks."""
    run_worker(MODULE, _node)


if __name__ == "__main__":
    main()
