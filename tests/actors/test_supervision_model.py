"""Supervisors against a model too dumb to be wrong, over random families and random crashes.

The model is a list of names and a counter per name; it knows nothing of processes, monitors or messages. Each example
is one `trio.run` on a clock that only moves when the example says so, so a failure replays exactly.
"""

from dataclasses import dataclass, field

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import (
    ActorSpec,
    Restart,
    Server,
    Stop,
    Strategy,
    Supervisor,
    SupervisorError,
    SupervisorSpec,
    System,
)

WINDOW_S = 5.0


@dataclass
class Life:
    restart: Restart
    running: bool = True
    starts: int = 1


@dataclass
class Model:
    """What OTP's documentation says, in as few words as possible."""

    strategy: Strategy
    max_restarts: int
    children: dict[int, Life]
    alive: bool = True
    restarts_s: list[float] = field(default_factory=list)

    def crash(self, victim: int, reason: str, now_s: float) -> None:
        life = self.children[victim]
        life.running = False
        if life.restart is Restart.TEMPORARY:
            del self.children[victim]
        elif life.restart is Restart.PERMANENT or reason == "boom":
            self.restarts_s.append(now_s)
            if sum(at_s >= now_s - WINDOW_S for at_s in self.restarts_s) > self.max_restarts:
                self.alive = False
                self.children = {}
                return
            self.restart_group(victim)

    def restart_group(self, victim: int) -> None:
        for name in list(self.children):
            if (
                name == victim
                or self.strategy is Strategy.ONE_FOR_ALL
                or (self.strategy is Strategy.REST_FOR_ONE and name > victim)
            ):
                if self.children[name].restart is Restart.TEMPORARY:
                    del self.children[name]
                else:
                    self.children[name].running = True
                    self.children[name].starts += 1

    def terminate(self, name: int) -> None:
        self.children[name].running = False
        if self.children[name].restart is Restart.TEMPORARY:
            del self.children[name]

    def seen(self) -> dict[int, tuple[bool, int]]:
        return {name: (life.running, life.starts) for name, life in self.children.items()}


class Child(Server[None]):
    def init(self, arg: tuple[int, dict[int, int]]) -> None:
        name, starts = arg
        starts[name] = starts.get(name, 0) + 1

    def handle_cast(self, message: str, state: None) -> Stop[None]:
        return Stop(message)


Step = tuple[str, int, float]
steps = st.lists(
    st.tuples(
        st.sampled_from(["boom", "boom", "boom", "normal", "shutdown", "kill", "terminate", "restart"]),
        st.integers(0, 5),
        st.sampled_from([0.0, 1.0, 3.0, 6.0]),
    ),
    max_size=25,
)


@given(
    strategy=st.sampled_from(Strategy),
    max_restarts=st.integers(0, 4),
    family=st.lists(st.sampled_from(Restart), min_size=1, max_size=6),
    script=steps,
)
@settings(max_examples=200)
def test_supervisors_do_what_the_model_does(
    strategy: Strategy, max_restarts: int, family: list[Restart], script: list[Step]
) -> None:
    model = Model(strategy, max_restarts, {name: Life(restart) for name, restart in enumerate(family)})
    trio.run(_play, model, script, clock=trio.testing.MockClock(autojump_threshold=0))


async def _play(model: Model, script: list[Step]) -> None:
    starts: dict[int, int] = {}
    async with System.open("model") as system:
        sup = await system.start_child(
            SupervisorSpec(
                "sup",
                tuple(
                    ActorSpec(name, Child, (name, starts), restart=life.restart, name=name)
                    for name, life in model.children.items()
                ),
                restart=Restart.TEMPORARY,
                strategy=model.strategy,
                max_restarts=model.max_restarts,
                window_s=WINDOW_S,
            )
        )
        assert sup is not None
        for action, name, pause_s in script:
            await trio.sleep(pause_s)
            await _do(system, model, action, name)
            await trio.testing.wait_all_tasks_blocked()
            assert sup.alive == model.alive
            if not model.alive:
                assert [ref.pid for ref in system.actors()] == [1], "a supervisor that gave up left nobody behind"
                return
            children = await Supervisor.which_children(sup)
            seen = {child.id: (child.status == "running", starts[int(str(child.id))]) for child in children}
            assert seen == model.seen()
            assert list(seen) == sorted(seen, key=str), "start order is kept"


async def _do(system: System, model: Model, action: str, name: int) -> None:
    """One step, on the real thing and on the model; nothing if the step makes no sense now."""
    sup = next(ref for ref in system.actors() if ref.pid == 2)
    life = model.children.get(name)
    if life is None:
        return
    match action:
        case "terminate":
            await Supervisor.terminate_child(sup, name)
            model.terminate(name)
        case "restart":
            try:
                await Supervisor.restart_child(sup, name)
            except SupervisorError:
                assert life.running
            else:
                assert not life.running
                life.running = True
                life.starts += 1
        case "kill" if life.running:
            ref = system.whereis(name)
            assert ref is not None
            ref.kill()
            model.crash(name, "boom", trio.current_time())
        case "boom" | "normal" | "shutdown" if life.running:
            system.named(name).cast(action)
            model.crash(name, action, trio.current_time())
        case _:
            pass
