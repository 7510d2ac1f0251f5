"""What a server keeps of where its home's log was, over restarts, and while a log that was restored is put right."""

from pathlib import Path

import pytest
import trio

from batonpass.authority.trust.signed_positions import MAX_HEARD_OFFICES, LogPlace, LogPosition
from batonpass.authority.wire.queries import MAX_FOREIGN_LOGS, MAX_OFFICES_ABROAD
from batonpass.crypto import jose
from batonpass.simserver.lease.log_watermark import LogWatermark
from tests.fuzz.world import IDENTITIES
from tests.simserver.ports import TrioClock

OLD, LOST, RESTORED = LogPlace(3, 40, "0" * 8), LogPlace(3, 44, "0" * 8), LogPlace(4, 41, "1" * 8)


def test_of_each_office_the_last_place_is_shown_and_what_is_confirmed_is_not_shown_for_good() -> None:
    log = LogWatermark(TrioClock())
    for place in (LOST, OLD, RESTORED):
        log.heard(place)
    assert log.places == f"{LOST} {RESTORED}"
    shown = log.places
    log.heard(LogPlace(4, 50, "1" * 8))
    log.confirmed(shown)
    assert log.places == "4.11111111.50"
    log.confirmed(log.places)
    assert log.places == "4.11111111.50", "the last one is later than what was signed"


def test_failures_row_42_what_is_heard_of_a_restored_log_neither_displaces_what_was_before_nor_is_held_against_it() -> (
    None
):
    log = LogWatermark(TrioClock())
    log.heard(LOST)
    for number in range(10):
        log.heard(RESTORED._replace(office=4 + number))
    assert len(log.places.split()) == MAX_HEARD_OFFICES
    assert str(LOST) in log.places
    log.went_back(str(LOST))
    assert log.places == str(LOST), "else the log that is put back would lack what the restored one said"
    log.heard(RESTORED)
    log.position = "a-signed-word"
    log.went_back("")
    assert log.places == "", "what is signed is evidence enough"
    assert log.position == "a-signed-word"
    log.went_back("", position_known=True)
    assert log.position == "", "it is of the restored log, and would be held against the one that is put back"
    assert log.doubtful == "a-signed-word"
    log.went_back("", position_known=True)
    assert log.doubtful == "a-signed-word", "there is no later one"


async def test_what_was_heard_outlives_the_process_and_a_file_of_before_is_read(tmp_path: Path) -> None:
    file = tmp_path / "home_log"
    file.write_text("a-signed-word")
    log = LogWatermark(TrioClock(), file)
    assert (log.position, log.places) == ("a-signed-word", "")
    async with trio.open_nursery() as nursery:
        await nursery.start(log.serve)
        log.heard(LOST)
        nursery.cancel_scope.cancel()
    again = LogWatermark(TrioClock(), file)
    assert (again.position, again.places) == ("a-signed-word", str(LOST))


async def test_failures_row_42_that_a_log_which_went_back_was_followed_is_known_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "home_log"
    log, other = LogWatermark(TrioClock(), file), signed("beta", 40)
    async with trio.open_nursery() as nursery:
        await nursery.start(log.serve)
        log.position = "a-signed-word"
        log.shown_abroad("beta", OLD, other)
        log.doubt()
        nursery.cancel_scope.cancel()
    again = LogWatermark(TrioClock(), file)
    assert (again.position, again.doubtful, again.witnesses) == ("", "a-signed-word", [other])


@pytest.mark.parametrize("text", ["word\nnonsense 1.2.3\n", "word\n\n", "word\n9.00000000\n"])
def test_what_is_no_place_is_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "home_log"
    file.write_text(text)
    log = LogWatermark(TrioClock(), file)
    assert (log.position, log.places) == ("word", "")


def signed(instance: str, revision: int) -> str:
    position = LogPosition(instance=instance, office=3, mark="0" * 32, revision=revision)
    return jose.sign(position.to_claims(), sender=IDENTITIES["alpha.h1"], sender_id=f"{instance}.h1")


async def test_failures_row_42_of_each_other_instance_the_last_signed_word_is_kept_over_restarts(
    tmp_path: Path,
) -> None:
    file = tmp_path / "home_log"
    log, words = LogWatermark(TrioClock(), file), {revision: signed("beta", revision) for revision in (40, 44)}
    other = signed("gamma", 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(log.serve)
        log.shown_abroad("beta", LogPlace(3, 44, "0" * 8), words[44])
        log.shown_abroad("gamma", LogPlace(3, 1, "0" * 8), other)
        log.shown_abroad("beta", LogPlace(3, 40, "0" * 8), words[40])
        nursery.cancel_scope.cancel()
    file.write_text(file.read_text() + "nonsense\n")
    again = LogWatermark(TrioClock(), file)
    assert (again.position, again.places) == ("", "")
    assert again.witnesses == [other, words[44]], "what is earlier is no news, but beta was heard of last"
    again.shown_abroad("beta", LogPlace(3, 45, "0" * 8), "later")
    assert again.witnesses == [other, "later"]


def test_failures_row_42_what_a_restored_log_of_another_instance_says_does_not_displace_what_it_said_before() -> None:
    log = LogWatermark(TrioClock())
    log.shown_abroad("beta", LOST, "lost")
    for revision in range(20):
        log.shown_abroad("beta", RESTORED._replace(revision=100 + revision), f"restored-{revision}")
    assert log.witnesses == ["lost", "restored-19"]
    for number in range(MAX_OFFICES_ABROAD):
        log.shown_abroad("beta", RESTORED._replace(office=5 + number), f"later-{number}")
    assert log.witnesses == [f"later-{number}" for number in range(MAX_OFFICES_ABROAD)]


def test_nobodys_last_word_makes_room_while_others_have_more_than_one() -> None:
    log = LogWatermark(TrioClock())
    log.shown_abroad("quiet", OLD, "quiet")
    for number in range(MAX_FOREIGN_LOGS):
        log.shown_abroad(f"i{number // 2}", OLD._replace(office=3 + number % 2), f"word-{number}")
    assert len(log.witnesses) == MAX_FOREIGN_LOGS
    assert "quiet" in log.witnesses
    assert "word-0" not in log.witnesses


def test_of_more_instances_than_there_is_room_for_those_heard_of_last_are_kept() -> None:
    log = LogWatermark(TrioClock())
    for number in range(MAX_FOREIGN_LOGS + 1):
        log.shown_abroad(f"i{number}", OLD, f"word-{number}")
    log.shown_abroad("i1", OLD, "again")
    log.shown_abroad("new", OLD, "new")
    assert len(log.witnesses) == MAX_FOREIGN_LOGS
    assert "word-1" in log.witnesses
    assert "word-0" not in log.witnesses
    assert "word-2" not in log.witnesses
