"""The stream machine: its rules, and the faults of the original that it does not have."""

import pytest

from batonpass.simserver.sync.events.limits import MAX_KNOWN, MAX_TICK, StreamLimits
from batonpass.simserver.sync.events.messages import PostedEvent, StateRow, StreamEvent
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.stream import StreamMachine
from tests.simserver.sync.events.game import ONE, OTHER, Game, told


def numbered(*numbers: int) -> tuple[PostedEvent, ...]:
    return tuple(PostedEvent("move", f"{number}", number) for number in numbers)


class TestOrder:
    def test_the_first_reply_has_tick_0_and_the_next_one_the_beginning(self) -> None:
        game = Game()
        assert (game.ask("me").tick, told(game.ask("me"))) == (0, [])
        assert told(game.wait(1).ask("me")) == [f"1 _a {ONE}", "1 _c 1"]

    def test_an_event_gets_the_tick_after_the_last_that_was_sent_to_anybody(self) -> None:
        game = Game()
        game.ask("a")
        game.wait(7).ask("b", 0)
        game.wait(2).ask("a", 7, "move")
        assert told(game.wait(1).ask("b", 7)) == ["8 move 1"]

    def test_e7_no_reply_has_an_event_after_its_tick(self) -> None:
        game = Game()
        game.ask("a")
        assert told(game.wait(3).ask("a", 0, "move"))[-1] == "1 move 1"
        reply = game.ask("a", 0, "again")
        assert (reply.tick, told(reply)[-1]) == (3, "1 move 1")
        assert told(game.wait(1).ask("a", 3)) == ["4 again 1"]

    def test_a_state_is_told_to_those_who_do_not_know_it_until_its_client_has_gone(self) -> None:
        game = Game()
        game.ask("a", 0, state={"x": "1"})
        assert game.wait(1).ask("b", 0, state={"y": "2"}).states == (
            StateRow(1, "1", {"x": "1"}),
            StateRow(2, "2", {"y": "2"}),
        )
        game.wait(2).ask("a", 1, state={"x": "9"})
        assert game.ask("b", 2).states == (StateRow(4, "1", {"x": "9"}),)
        game.ask("a", 3, leave=True)
        assert game.ask("b", 0).states == (StateRow(2, "2", {"y": "2"}),)


class TestSilence:
    def test_e4_a_client_is_disconnected_after_more_than_10000_ms(self) -> None:
        game = Game()
        game.ask("a")
        game.wait(ms=10_000).ask("b")
        assert told(game.wait(1, ms=-50).ask("b"))[-1] == "1 _c 2"
        assert told(game.wait(ms=1).ask("b", 1)) == []
        assert told(game.wait(1).ask("b", 1)) == ["2 _d 1"]

    def test_e5_a_client_that_comes_back_is_the_same_and_is_connected_again(self) -> None:
        game = Game()
        game.ask("a")
        game.wait(ms=10_001).ask("b")
        assert game.ask("a").public_id == "1"
        assert told(game.wait(1).ask("a")) == [f"1 _a {ONE}", "1 _c 1", "1 _d 1", "1 _c 2", "1 _c 1"]

    def test_a_client_does_not_disconnect_itself_by_being_late(self) -> None:
        game = Game()
        game.ask("a")
        game.wait(ms=20_000).ask("a", 0, "move")
        assert told(game.wait(1).ask("a")) == [f"1 _a {ONE}", "1 _c 1", "1 move 1"]

    def test_all_are_disconnected_in_time_though_nobody_asks(self) -> None:
        game = Game()
        game.ask("a")
        game.ask("b")
        game.wait(3, ms=10_000)
        game.stream.expire(game.now_ms)
        assert game.stream.connected == 0
        game.ask("b")
        assert told(game.wait(1).ask("b"))[2:] == ["1 _c 2", "1 _d 1", "1 _d 2", "1 _c 2"]

    def test_an_open_connection_is_no_silence(self) -> None:
        game = Game()
        game.ask("a")
        for _ in range(4):
            assert game.wait(ms=9_000).stream.hear("a", game.now_ms)
        game.ask("b")
        assert game.stream.connected == 2
        assert not game.stream.hear("nobody", game.now_ms)

    def test_a_client_that_leaves_is_gone_at_once_after_its_last_events(self) -> None:
        game = Game()
        game.ask("a")
        game.ask("b")
        game.ask("a", 0, "bye", leave=True)
        assert told(game.wait(1).ask("b"))[-2:] == ["1 bye 1", "1 _d 1"]

    def test_leaving_without_having_come_puts_nothing_into_the_log(self) -> None:
        game = Game()
        assert game.ask("a", leave=True).public_id == ""
        assert len(game.stream) == 1

    def test_time_waits_while_nobody_is_connected(self) -> None:
        game = Game()
        game.wait(5).ask("a")
        assert game.stream.tick == 0
        game.wait(5).ask("a", leave=True)
        game.wait(100).ask("a")
        assert game.stream.tick == 5

    def test_time_does_not_wait_where_pause_is_off(self) -> None:
        assert Game(StreamLimits(pause=False)).wait(5).ask("a").tick == 5


class TestNumberedEvents:
    def test_e13_a_repeated_request_whose_reply_was_lost_puts_its_events_in_once(self) -> None:
        game = Game()
        for _ in range(3):
            assert game.ask("a", 0, events=numbered(1, 2)).acked == 2
        assert game.ask("a", 0, events=numbered(2, 3)).acked == 3
        assert [event.body for event in game.wait(1).ask("a").events[2:]] == ["1", "2", "3"]

    def test_events_of_old_clients_have_no_number_and_are_taken_as_they_are(self) -> None:
        game = Game()
        assert game.ask("a", 0, "move", "move").acked == 0
        assert told(game.wait(1).ask("a"))[2:] == ["1 move 1", "1 move 1"]

    def test_what_was_taken_is_known_after_the_client_was_disconnected(self) -> None:
        game = Game()
        game.ask("a", 0, events=numbered(1, 2), leave=True)
        assert game.ask("a", 0, events=numbered(1, 2)).acked == 2


class TestBounds:
    def test_events_above_the_rate_are_refused_and_leave_the_allowance_as_it_was(self) -> None:
        game = Game()
        assert game.refused("a", 0, *["move"] * 21) is RefusalCode.TOO_MANY_EVENTS
        assert (len(game.stream), game.stream.connected) == (1, 0)
        game.ask("a", 0, *["move"] * 20)
        assert game.refused("a", 0, "move") is RefusalCode.TOO_MANY_EVENTS
        game.wait(1).ask("a", 0, "move")
        game.wait(ms=3_000).ask("a", 0, *["move"] * 20)
        assert game.refused("a", 0, "move") is RefusalCode.TOO_MANY_EVENTS

    def test_all_clients_of_a_stream_together_have_a_rate_too_however_many_private_ids_one_person_takes(self) -> None:
        game = Game(StreamLimits(max_stream_events_per_s=50))
        game.ask("a", 0, *["move"] * 20)
        game.ask("b", 0, *["move"] * 20)
        before = game.stream.as_data()
        assert game.refused("c", 0, *["move"] * 11) is RefusalCode.TOO_MANY_EVENTS
        assert game.stream.as_data() == before
        game.stream = StreamMachine.from_data(before, game.limits)
        assert game.refused("c", 0, *["move"] * 11) is RefusalCode.TOO_MANY_EVENTS
        game.ask("c", 0, *["move"] * 10)
        game.wait(ms=400).ask("d", 0, *["move"] * 20)
        assert game.refused("e", 0, "move") is RefusalCode.TOO_MANY_EVENTS

    def test_a_reply_ends_with_the_last_whole_tick_that_fits_and_the_client_asks_again_from_there(self) -> None:
        game = Game(StreamLimits(max_reply_bytes=200))
        for _ in range(6):
            game.ask("a", game.stream.tick, "move", "move")
            game.wait(2)
        game.ask("a", game.stream.tick, *["move"] * 15)
        game.wait(1)
        known, told, ticks = 0, list[StreamEvent](), list[int]()
        while known < game.stream.tick:
            reply = game.ask("a", known)
            assert reply.tick > known
            told += reply.events
            known = reply.tick
            ticks.append(known)
            sizes = [len(reply.events) - 5, len({event.tick for event in reply.events}) - 1]
            assert min(sizes) <= 0, "200 bytes have 5 events; only one tick alone may have more"
        assert len(ticks) > 3
        whole = StreamMachine.from_data(game.stream.as_data()).reply_for("a", 0)
        assert (tuple(told), known) == (whole.events, whole.tick)

    def test_repeated_events_use_no_allowance(self) -> None:
        game = Game(StreamLimits(max_events_per_s=2))
        for _ in range(5):
            game.ask("a", 0, events=numbered(1, 2))

    def test_one_client_too_many_is_refused_until_another_leaves(self) -> None:
        game = Game(StreamLimits(max_clients=1))
        game.ask("a")
        assert game.refused("b") is RefusalCode.TOO_MANY_CLIENTS
        game.ask("a")
        game.wait(ms=10_001).ask("b")

    def test_a_full_stream_takes_no_event_and_no_client_but_answers_and_lets_clients_go(self) -> None:
        game = Game(StreamLimits(max_events=3))
        game.ask("a")
        game.ask("a", 0, "move")
        assert game.refused("a", 0, "move") is RefusalCode.STREAM_FULL
        assert game.refused("b") is RefusalCode.STREAM_FULL
        assert len(game.wait(1).ask("a").events) == 3
        game.ask("a", leave=True)
        assert game.refused("a") is RefusalCode.STREAM_FULL

    def test_a_stream_is_full_by_its_bytes_too(self) -> None:
        game = Game(StreamLimits(max_log_bytes=1_000))
        assert game.refused("a", 0, events=(PostedEvent("move", "x" * 1_000),)) is RefusalCode.STREAM_FULL
        game.ask("a", 0, events=(PostedEvent("move", "x" * 500),))
        assert game.refused("a", 0, events=(PostedEvent("move", "é" * 200),)) is RefusalCode.STREAM_FULL

    def test_the_client_that_is_gone_longest_is_forgotten_where_too_many_are(self) -> None:
        game = Game(StreamLimits(max_remembered=1))
        game.ask("a", 0)
        game.ask("a", leave=True)
        game.ask("b")
        game.ask("b", leave=True)
        assert (game.ask("b").public_id, game.ask("a").public_id) == ("2", "3")


class TestIncarnations:
    def test_every_reply_names_the_incarnation_and_so_does_the_first_event(self) -> None:
        game = Game()
        assert game.ask("a").incarnation == ONE
        assert game.wait(1).ask("a").events[0].body == ONE

    def test_a_client_of_another_incarnation_begins_anew(self) -> None:
        game = Game()
        game.ask("a")
        reply = game.wait(9).ask("b", 5, incarnation=OTHER)
        assert (reply.reset, reply.tick, told(reply)[0]) == (True, 9, f"1 _a {ONE}")

    def test_what_a_client_says_of_another_incarnation_is_not_taken(self) -> None:
        game = Game()
        reply = game.ask("a", 0, incarnation=OTHER, events=numbered(1), state={"x": "1"}, hashes=((1, "0" * 64),))
        assert (reply.acked, reply.states) == (0, ())
        assert game.ask("a", 0, incarnation=ONE, events=numbered(1)).acked == 1

    def test_a_client_that_knows_more_than_there_is_begins_anew(self) -> None:
        game = Game()
        game.ask("a", incarnation=ONE)
        assert game.wait(3).ask("a", 3, incarnation=ONE).reset is False
        assert game.ask("a", 4, incarnation=ONE).reset is True
        assert told(game.stream.reply_for("a", 4))[0] == f"1 _a {ONE}"

    def test_e16_an_old_client_whose_stream_was_lost_is_told_the_new_one_behind_what_it_knows(self) -> None:
        game = Game()
        game.ask("b")
        game.wait(3).ask("b")
        first = game.ask("a", 500)
        assert (first.tick, first.reset) == (503, False)
        assert told(first) == [f"501 _a {ONE}", "501 _c 1"]
        reply = game.wait(2).ask("a", first.tick)
        assert (reply.tick, told(reply)) == (505, ["504 _c 2"])
        # Others see true ticks.
        assert told(game.ask("b", 3)) == ["4 _c 2"]

    def test_an_old_client_is_not_known_though_the_new_stream_is_older_than_its_lost_one(self) -> None:
        game = Game()
        game.ask("b")
        reply = game.wait(100).ask("a", 7)
        assert (reply.tick, told(reply)) == (107, [f"8 _a {ONE}", "8 _c 1", "8 _c 2"])

    def test_an_old_client_whose_first_reply_was_lost_is_told_it_again(self) -> None:
        game = Game()
        first = game.ask("a", 500)
        assert first.tick == 500
        assert told(game.wait(2).ask("a", 500)) == [f"501 _a {ONE}", "501 _c 1"]

    def test_an_old_client_may_lose_its_stream_time_after_time(self) -> None:
        known = 70
        for _ in range(3):
            game = Game()
            game.ask("a", known)
            reply = game.wait(5).ask("a", known)
            assert told(reply) == [f"{known + 1} _a {ONE}", f"{known + 1} _c 1"]
            known = reply.tick
        assert known == 85

    def test_an_old_client_that_is_told_of_a_stream_which_went_back_is_told_it_anew(self) -> None:
        game = Game()
        game.ask("a")
        older = game.stream.as_data()
        assert game.wait(9).ask("a").tick == 9
        game.stream = StreamMachine.from_data(older)
        reply = game.wait(4).ask("a", 9)
        assert (reply.tick, told(reply)[0]) == (13, f"10 _a {ONE}")

    def test_an_old_client_is_not_told_ticks_that_it_may_not_name(self) -> None:
        game = Game()
        game.ask("a", MAX_TICK)
        reply = game.wait(5).ask("a", MAX_TICK)
        assert reply.tick == MAX_TICK + 5 <= MAX_KNOWN
        assert game.wait(2).ask("a", reply.tick).tick == MAX_TICK + 7
        with pytest.raises(StreamRefusal, match="begin with 0") as caught:
            Game().ask("b", reply.tick)
        assert caught.value.code is RefusalCode.BAD_NUMBER

    def test_an_old_client_that_starts_again_with_0_sees_true_ticks(self) -> None:
        game = Game()
        game.ask("a", 500)
        assert told(game.wait(1).ask("a", 0)) == [f"1 _a {ONE}", "1 _c 1"]

    def test_states_and_hashes_of_a_shifted_client_are_shifted_too(self) -> None:
        game = Game()
        game.wait(3).ask("a", 500, state={"x": "1"})
        assert game.ask("a", 500).states == (StateRow(501, "1", {"x": "1"}),)


class TestData:
    def test_private_ids_are_nowhere_in_the_data(self) -> None:
        game = Game()
        game.ask("a secret", 0, "move")
        assert "secret" not in repr(game.stream.as_data()["clients"])

    def test_the_clock_of_a_stream_never_goes_back(self) -> None:
        game = Game()
        game.ask("a")
        game.wait(ms=9_000).ask("b")
        game.wait(ms=-9_000).ask("b")
        assert game.stream.now_ms == 9_000

    def test_that_of_a_later_release_is_refused(self) -> None:
        data = Game().stream.as_data() | {"format": 2}
        with pytest.raises(ValueError, match="format 2"):
            StreamMachine.from_data(data)
