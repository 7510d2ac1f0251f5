"""The world of shows: its limit only rises, and a hand-over is told from a failover."""

from typing import Any

import pytest

from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.sync.shows.world import MAX_FRAME, Shows, held_input, held_nodes, limit_input, shows_of
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import NOTHING_CARRIED, Step

WALL = "alpha.show-wall"
ENGINE = "package.module:render"


def advanced(world: Shows, state: Any, *limits: int, source: str = OWN_SOURCE) -> Any:
    inputs = [PendingInput(source, number, limit_input(limit)) for number, limit in enumerate(limits, 1)]
    return world.advance(state, inputs, 0.05, Step(NOTHING_CARRIED, 1, entity=WALL))


def test_a_new_show_has_sent_nothing_and_is_what_the_options_say_or_its_parameters() -> None:
    world = Shows(ENGINE, rate="120000/1001", mode="delta")
    state = world.spawn("show", {})
    assert state == {"limit": 0, "rate": [120000, 1001], "mode": "delta", "fence": "none"}
    assert world.spawn("show", {"rate": "50", "fence": "soft"}) == state | {"rate": [50, 1], "fence": "soft"}


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"rate": "59.94"}, "frames per second"),
        ({"rate": 60}, "frames per second"),
        ({"rate": "0"}, "frames per second"),
        ({"rate": "1001"}, "at most 1,000 frames per second"),
        ({"mode": "full"}, "state, delta, inputs"),
        ({"colour": "red"}, "a show has no 'colour'"),
    ],
)
def test_a_show_that_makes_no_sense_is_refused_with_what_to_write(params: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Shows(ENGINE).spawn("show", params)


def test_options_that_make_no_sense_are_refused() -> None:
    for options in ({"engine": "no engine"}, {"lead_s": 0}, {"rate": "x"}, {"mode": "x"}, {"fence": "x"}):
        with pytest.raises(ValueError, match="give"):
            Shows(**options)


@pytest.mark.parametrize(
    "options",
    [
        *({"shows": shows} for shows in ([1], [None], "wall", 1)),
        *({"settings": settings} for settings in ([1], 1, "nack_ms", {"max_state_bytes": 10**15})),
        {"settings": {"max_state_bytes": 10**15, "max_open_bytes": 10**15}},
        {"engine_options": [1]},
    ],
)
def test_options_of_a_wrong_kind_or_without_bounds_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Shows(ENGINE, **options)


def test_a_server_without_an_engine_takes_no_show() -> None:
    assert Shows().kinds == ()
    assert Shows(ENGINE).kinds == ("show",)


def test_the_limit_rises_by_what_this_server_asks_and_never_falls() -> None:
    world = Shows(ENGINE)
    state = advanced(world, world.spawn("show", {}), 60, 30)
    assert state["limit"] == 60
    assert advanced(world, state, 59) is state
    assert advanced(world, state, 61, source="alpha.ada") is state
    assert advanced(world, state, MAX_FRAME + 1) is state


def test_the_lead_is_in_frames_of_the_show() -> None:
    world = Shows(ENGINE, lead_s=0.5)
    assert world.lead(world.spawn("show", {"rate": "60"})) == 30
    assert world.lead(world.spawn("show", {"rate": "1"})) == 2


def test_a_hand_over_brings_the_next_frame_along_and_a_copy_does_not() -> None:
    source, target = Shows(ENGINE), Shows(ENGINE)
    state = advanced(source, source.spawn("show", {}), 60)
    moves = source.participants["show"]
    assert moves.dehydrate(WALL, state) is None
    source.pause = lambda entity: 17 if entity == WALL else None
    brought = moves.dehydrate(WALL, state)
    target.participants["show"].rehydrate(WALL, state, brought)
    assert target.continuations == {WALL: 17}
    target.participants["show"].release(WALL)
    assert target.continuations == {}


@pytest.mark.parametrize("brought", [61, -1, "17", [17], None])
def test_what_does_not_fit_the_state_is_refused_so_that_the_show_begins_at_its_limit(brought: Any) -> None:
    world = Shows(ENGINE)
    state = advanced(world, world.spawn("show", {}), 60)
    with pytest.raises((ValueError, TypeError)):
        world.participants["show"].rehydrate(WALL, state, brought)
    assert world.continuations == {}


def test_the_shows_of_a_world_are_found() -> None:
    world = Shows(ENGINE)
    assert shows_of(world) is world
    assert shows_of(object()) is None


def test_nodes_are_held_and_released_by_the_controller_alone_and_a_state_of_an_earlier_release_holds_none() -> None:
    world = Shows(ENGINE)
    state = world.spawn("show", {})

    def after(*inputs: bytes, source: str = OWN_SOURCE) -> Any:
        pending = [PendingInput(source, number, data) for number, data in enumerate(inputs, 1)]
        return world.advance(state, pending, 0.05, Step(NOTHING_CARRIED, 1, entity=WALL))

    hold, release = (held_input("alpha.s2", is_held=each) for each in (True, False))
    assert held_nodes(state) == frozenset()
    assert held_nodes(after(hold, held_input("alpha.s3", is_held=True), limit_input(60))) == {"alpha.s2", "alpha.s3"}
    assert held_nodes(after(hold, release)) == frozenset()
    assert after(hold, source="alpha.ada") is after(release) is state


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"pieces_bytes": 1}, "settings has no 'pieces_bytes': there are piece_bytes"),
        ({"piece_bytes": "big"}, "piece_bytes is 'big': give a whole number"),
        ({"piece_bytes": True}, "give a whole number"),
        ({"piece_bytes": 10}, "give 64 to 65,000"),
        ({"window_s": float("nan")}, "give more than 0"),
        ({"survey_s": -1}, "give 0 or more"),
        ({"rate": 60}, "settings has no 'rate'"),
    ],
)
def test_settings_are_refused_when_the_server_starts_and_not_when_the_show_does(
    settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Shows(ENGINE, settings=settings)


@pytest.mark.parametrize("shows", ["wall", ["alpha.show-wall"], [""], ["w"] * 17])
def test_shows_from_the_start_are_names_without_the_instance(shows: Any) -> None:
    with pytest.raises(ValueError, match="give"):
        Shows(ENGINE, shows=shows)
