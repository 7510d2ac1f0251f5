"""State machines do what gen_statem was recorded to do."""

import pytest
import trio
import trio.testing

from batonpass.actors import System
from tests.actors.machines.play import played
from tests.actors.machines.script import read_script, recorded

SCRIPTS = recorded()


def test_there_are_scripts_of_every_kind() -> None:
    assert len(SCRIPTS) > 900
    programs = [read_script(script)[0] for script in SCRIPTS]
    assert {(program.by_function, program.enter) for program in programs} == {
        (by_function, enter) for by_function in (False, True) for enter in (False, True)
    }
    told = " ".join(SCRIPTS.values())
    for what in ("<>", "<st:", "<et:", "<t1:", "<n1", "!boom", "!error", "q1=ok", "q1=x"):
        assert told.count(what) > 10, what


@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.parametrize("part", range(10))
def test_a_state_machine_does_what_gen_statem_does(part: int, slowly: bool) -> None:
    async def play_all() -> None:
        async with System.open("recorded", slow_callback_s=60.0) as system:
            for script, transcript in list(SCRIPTS.items())[part::10]:
                assert await played(system, *read_script(script), slowly=slowly) == transcript, script

    trio.run(play_all, clock=trio.testing.MockClock(autojump_threshold=0))
