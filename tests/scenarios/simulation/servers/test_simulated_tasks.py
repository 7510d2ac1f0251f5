"""Tasks of simulated processes: what they share, and what each has for itself, as under trio."""

from batonpass.actors.core.log_metadata import log_metadata, log_metadata_of, set_log_metadata
from batonpass.scenarios.simulation.kernel.schedule import Schedule
from batonpass.scenarios.simulation.servers.tasks import SimulatedProcess, pause


def test_what_a_task_works_on_is_its_own_and_that_of_what_it_starts() -> None:
    schedule = Schedule()
    process, seen = SimulatedProcess("alpha.s1", schedule), dict[str, object]()

    async def outer() -> None:
        with log_metadata_of(transfer="t-1"):
            process.start_soon(inner, "started by outer")
            await pause(2.0)
            seen["outer"] = log_metadata().get("transfer")

    async def inner(who: str) -> None:
        seen[who] = log_metadata().get("transfer")
        set_log_metadata(transfer=who)
        await pause(5.0)

    process.start_soon(outer)
    process.start_soon(inner, "beside it")
    schedule.run_until(schedule.now_s + 1.0)
    process.do(lambda: seen.update(arrived=log_metadata().get("transfer")))
    schedule.run_until(schedule.now_s + 9.0)
    assert seen == {"started by outer": "t-1", "beside it": None, "outer": "t-1", "arrived": None}
    assert log_metadata() == {}
