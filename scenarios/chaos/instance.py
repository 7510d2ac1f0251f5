"""The members of a run as processes: started, killed, stopped and asked."""

import secrets
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import trio

from batonpass.scenarios.chaos.link import MemberGone, MemberLink, MemberSilent, NotAccepted
from batonpass.scenarios.chaos.member import ChaosMemberConfig
from batonpass.scenarios.chaos.network import ChaosNetwork
from batonpass.scenarios.chaos.storage import Storage
from batonpass.scenarios.cluster.processes import ChildCommand, ChildExit, ChildProcesses, RunningChild

__all__ = ["PATIENCE_S", "Instance", "NotInTime"]

_ASK_S: Final = 1.0
_POLL_S: Final = 0.01
# How long one member is asked to pursue a change of the members before another one is.
_CHANGE_ATTEMPT_S: Final = 5.0
# Several elections that come to nothing, or a start of everything on a machine that is busy with other things. How fast
# a machine is, is in the report: this is for what never comes.
PATIENCE_S: Final = 120.0


class NotInTime(Exception):
    """The instance did not do in time what it must do when nothing disturbs it; the sentence says what."""


class Instance:
    """An instance of members. The run owns its parts: network, storage, and the scope of its processes.

    Args:
        directory: where configurations, logs and sockets are.
    """

    def __init__(
        self,
        names: Sequence[str],
        directory: Path,
        network: ChaosNetwork,
        storage: Storage,
        processes: ChildProcesses,
        nursery: trio.Nursery,
    ) -> None:
        self.names: Final = list(names)
        """The members as they are now; changed in place when one is added, removed or replaced."""
        self.network: Final = network
        self.storage: Final = storage
        self._directory: Final = directory
        self._processes: Final = processes
        self._nursery: Final = nursery
        self._secret: Final = secrets.token_bytes(32)
        self._children: dict[str, RunningChild] = {}
        self._links: dict[str, MemberLink] = {}
        self._founders: Final = tuple(names)
        self._newcomers = 0

    async def prepare(self) -> None:
        """Make the places of all members that found the instance."""
        for name in self.names:
            await self.storage.add(name)
            await self.network.plug_in(name)
        for name in self.names:
            self._configure(name, self.names, join=False)

    @property
    def is_as_founded(self) -> bool:
        """Whether the members are still those that the instance began with."""
        return self.names == list(self._founders)

    # --- processes ---

    def launch(self, name: str) -> RunningChild:
        """Start a member's process; whether it can run shows later."""
        self._socket(name).unlink(missing_ok=True)
        config_file = str(self._config_file(name))
        argv = (*self.network.prefix(name), sys.executable, "-m", "batonpass.scenarios.chaos.member", config_file)
        child = self._processes.start(ChildCommand(name, argv, self.log_file(name)))
        self._children[name] = child
        return child

    async def start(self, *names: str) -> None:
        """Start members and wait until each answers.

        Raises:
            NotInTime: one ended, or did not answer.
        """
        for name in names:
            self.launch(name)
        for name in names:
            await self._connect(name)

    async def kill(self, *names: str) -> None:
        """SIGKILL members, all at once, and wait until they are gone."""
        for name in names:
            self._children[name].kill()
        for name in names:
            await self._children[name].wait()
            self._drop_link(name)

    async def pause(self, *names: str) -> None:
        """SIGSTOP members; returns when they stand."""
        for name in names:  # all at once, before anything waits
            self._children[name].signal(signal.SIGSTOP)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(self._children[name].pause)

    def resume(self, *names: str) -> None:
        """SIGCONT members."""
        for name in names:
            self._children[name].resume()

    async def dies_in_sync(self, name: str, number: int) -> bool:
        """Have a member kill itself in one of its next syncs; whether it came to one within a few seconds."""
        child = self._children[name]
        child.stop_requested = True
        with suppress(MemberGone, MemberSilent):
            await self.ask(name, "die_in_sync", number_of_sync=number)
        with trio.move_on_after(5.0):
            await child.wait()
            self._drop_link(name)
            return True
        await self.kill(name)
        return False

    async def stops_by_itself(self, name: str, within_s: float) -> ChildExit | None:
        """Wait for a member to end without being killed, as it may from now on; how it did, or None if it continues."""
        child = self._children[name]
        child.stop_requested = True
        with trio.move_on_after(within_s):
            await child.wait()
            self._drop_link(name)
        return child.exit

    def must_go_on(self, name: str) -> None:
        """From now on, a member that ends by itself is a violation again."""
        self._children[name].stop_requested = False

    async def ends(self, name: str) -> ChildExit | None:
        """Launch a member that is expected to refuse to run; how it ended, or None if it runs."""
        child = self.launch(name)
        child.stop_requested = True
        with trio.move_on_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:

                async def runs() -> None:
                    await self._connect(name)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(runs)
                await child.wait()
                nursery.cancel_scope.cancel()
        return child.exit

    # --- members ---

    async def newcomer(self) -> str:
        """A place for one more member, which is started and waits to be admitted; its name."""
        self._newcomers += 1
        name = f"m{len(self._founders) + self._newcomers}"
        await self.storage.add(name)
        await self.network.plug_in(name)
        self._configure(name, [*self.names, name], join=True)
        await self.start(name)
        return name

    async def returns_empty(self, name: str) -> None:
        """Start a member whose files were moved away as one that waits to be admitted."""
        self._configure(name, self.names, join=True)
        await self.start(name)

    async def retire(self, name: str) -> ChildExit | None:
        """A member was removed and has to end by itself; how it did, or None if it did not. Its place is taken away."""
        child = self._children[name]
        child.stop_requested = True
        with trio.move_on_after(PATIENCE_S):
            await child.wait()
        end = child.exit
        await self.kill(name)
        await self.network.unplug(name)
        await self.storage.remove(name)
        return end

    def is_running(self, name: str) -> bool:
        """Whether the member's process is there."""
        return self._children[name].running

    def may_end(self, name: str) -> None:
        """From now on, this member is about to be removed."""
        self._children[name].stop_requested = True

    async def change(self, op: str, *, through: str | None = None, **arguments: Any) -> Any:
        """Have a change of the members, or of the leader, made through any member, or one of those that are there.

        It is asked for again, as it may be, whenever it was refused or its outcome is unknown.

        Raises:
            NotInTime: it is not done; the sentence has the last refusal.
        """
        last = "no member could be asked"
        turn = 0
        with trio.move_on_after(PATIENCE_S):
            while True:
                name = through or self.names[turn % len(self.names)]
                through, turn = None, turn + 1
                try:
                    return await self.ask(
                        name, op, within_s=_CHANGE_ATTEMPT_S + _ASK_S, timeout_s=_CHANGE_ATTEMPT_S, **arguments
                    )
                except (MemberGone, MemberSilent, NotAccepted) as error:
                    last = f"{name}: {error}"
                    await trio.sleep(_POLL_S)
        raise NotInTime(f"{op} {arguments} was not done within {PATIENCE_S:g} s ({last})")

    def member(self, name: str) -> tuple[str, str, int]:
        """Name, host and port."""
        return (name, *self.network.address(name))

    # --- questions ---

    def link(self, name: str) -> MemberLink | None:
        """The connection to the member, or None while there is none."""
        link = self._links.get(name)
        return None if link is None or link.gone else link

    async def ask(self, name: str, op: str, *, within_s: float = _ASK_S, **arguments: Any) -> Any:
        """Ask a member; see `MemberLink.ask`."""
        link = self.link(name)
        if link is None:
            raise MemberGone(name)
        return await link.ask(op, within_s=within_s, **arguments)

    async def leader(self) -> str:
        """The member that leads and whom a majority follows.

        Raises:
            NotInTime: there is none.
        """
        with trio.move_on_after(PATIENCE_S):
            while True:
                statuses = await self._statuses()
                for name, status in statuses.items():
                    followers = sum(other["leader"] == name for other in statuses.values())
                    if status["is_leader"] and status["ready"] and 2 * followers > len(self.names):
                        return name
                await trio.sleep(_POLL_S)
        raise NotInTime(f"no leader that a majority follows within {PATIENCE_S:g} s")

    async def together(self) -> int:
        """Wait until all members run, follow one leader and have applied what it had; the index of that.

        Raises:
            NotInTime: they do not come together; the sentence says what each of them knows.
        """
        index: int | None = None
        statuses: dict[str, Any] = {}
        with trio.move_on_after(PATIENCE_S):
            while True:
                statuses = await self._statuses()
                leaders = {status["leader"] for status in statuses.values() if status["ready"]}
                if len(statuses) == len(self.names) and len(leaders) == 1 and None not in leaders:
                    if index is None:
                        index = max(status["applied"] for status in statuses.values())
                    if all(status["applied"] >= index and status["ready"] for status in statuses.values()):
                        return index
                await trio.sleep(_POLL_S)
        raise NotInTime(f"the members were not together again within {PATIENCE_S:g} s: {statuses}")

    async def _statuses(self) -> dict[str, Any]:
        statuses: dict[str, Any] = {}

        async def ask(name: str) -> None:
            try:
                statuses[name] = await self.ask(name, "status")
            except (MemberGone, MemberSilent, NotAccepted):
                return

        async with trio.open_nursery() as nursery:
            for name in self.names:
                nursery.start_soon(ask, name)
        return {name: statuses[name] for name in self.names if name in statuses}

    # --- files ---

    def log_file(self, name: str) -> Path:
        """Where the member's process logs to."""
        return self._directory / f"{name}.log"

    def account(self, name: str) -> Path:
        """Where the member leaves the account of its unsynced writes."""
        return self._directory / f"{name}.unsynced"

    def _configure(self, name: str, members: Sequence[str], *, join: bool) -> None:
        config = ChaosMemberConfig(
            name=name,
            members=tuple(self.member(other) for other in members),
            directory=str(self.storage.directory(name)),
            secret_hex=self._secret.hex(),
            socket=str(self._socket(name)),
            account=str(self.account(name)),
            join=join,
        )
        file = self._config_file(name)
        file.touch(mode=0o600)
        config.save(file)

    def _config_file(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def _socket(self, name: str) -> Path:
        return self._directory / f"{name}.socket"

    async def _connect(self, name: str) -> None:
        child = self._children[name]
        link = MemberLink(name, self._socket(name))
        connected = trio.Event()

        async def connect() -> None:
            await self._nursery.start(link.serve)
            connected.set()

        with trio.move_on_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:

                async def give_up_when_it_ends() -> None:
                    await child.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(give_up_when_it_ends)
                await connect()
                nursery.cancel_scope.cancel()
        if not connected.is_set():
            how = "did not answer" if child.exit is None else child.exit.sentence
            raise NotInTime(f"{name} was started and does not run: {how}")
        self._links[name] = link

    def _drop_link(self, name: str) -> None:
        link = self._links.pop(name, None)
        if link is not None:
            link.hang_up()
