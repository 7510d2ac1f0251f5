"""GoEventStream's JSON, and what is refused of it."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.events.json_form import (
    MAX_WAIT_S,
    StreamAction,
    StreamTarget,
    read_path_untrusted,
    read_request_untrusted,
    read_snapshot_untrusted,
    write_refusal,
    write_reply,
)
from batonpass.simserver.sync.events.limits import MAX_KNOWN, StreamLimits
from batonpass.simserver.sync.events.messages import (
    DesyncNotice,
    PostedEvent,
    StateRow,
    StreamEvent,
    StreamReply,
    StreamRequest,
)
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal

LIMITS = StreamLimits()
SYNC = StreamTarget(StreamAction.SYNC, "game", "me", 0)
HASH = "ab" * 32


def read(body: str | bytes) -> StreamRequest:
    return read_request_untrusted(SYNC, body.encode() if isinstance(body, str) else body, LIMITS)


def refused(body: str | bytes) -> RefusalCode:
    with pytest.raises(StreamRefusal) as caught:
        read(body)
    assert 400 <= caught.value.status < 500
    return caught.value.code


def path_refused(method: str, path: str) -> RefusalCode:
    with pytest.raises(StreamRefusal) as caught:
        read_path_untrusted(method, path, LIMITS)
    return caught.value.code


class TestPaths:
    @pytest.mark.parametrize(
        ("method", "path", "target"),
        [
            ("POST", "/game/me/7", StreamTarget(StreamAction.SYNC, "game", "me", 7)),
            ("GET", "/game/me/0", StreamTarget(StreamAction.SYNC, "game", "me", 0)),
            ("POST", "/a%20game%2Fv1/m%C3%A9/%2B7", StreamTarget(StreamAction.SYNC, "a game/v1", "mé", 7)),
            ("POST", "/game/me/-1", StreamTarget(StreamAction.SYNC, "game", "me", -1)),
            ("DELETE", "/game/me", StreamTarget(StreamAction.LEAVE, "game", "me")),
            ("GET", "/game/snapshot", StreamTarget(StreamAction.GET_SNAPSHOT, "game")),
            ("GET", "/game/desync", StreamTarget(StreamAction.GET_DESYNC, "game")),
            ("PUT", "/game/me/snapshot/9", StreamTarget(StreamAction.PUT_SNAPSHOT, "game", "me", 9)),
            ("PUT", "/game/me/desync/9", StreamTarget(StreamAction.PUT_DESYNC, "game", "me", 9)),
        ],
    )
    def test_a_path_is_read(self, method: str, path: str, target: StreamTarget) -> None:
        assert read_path_untrusted(method, path, LIMITS) == target

    @pytest.mark.parametrize("number", ["junk", "", " ", "1e3", "0x10", "1_000", "٣", "--1"])
    def test_a_last_known_tick_that_is_no_number_is_0_as_in_the_original(self, number: str) -> None:
        if number:
            assert read_path_untrusted("POST", f"/game/me/{number}", LIMITS).tick == 0

    @pytest.mark.parametrize("number", [f"{MAX_KNOWN + 1}", f"-{MAX_KNOWN + 1}", "9223372036854775808", "9" * 120])
    def test_fault_9_a_last_known_tick_out_of_range_is_refused(self, number: str) -> None:
        assert path_refused("POST", f"/game/me/{number}") is RefusalCode.BAD_NUMBER

    @pytest.mark.parametrize("tick", ["junk", "-1", f"{MAX_KNOWN + 1}"])
    def test_the_tick_of_a_snapshot_or_dump_is_a_number(self, tick: str) -> None:
        assert path_refused("PUT", f"/game/me/snapshot/{tick}") is RefusalCode.BAD_NUMBER
        assert path_refused("PUT", f"/game/me/desync/{tick}") is RefusalCode.BAD_NUMBER

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("POST", "/foo"),
            ("POST", "/"),
            ("POST", ""),
            ("POST", "/game/me"),
            ("POST", "//me/0"),
            ("POST", "/game//0"),
            ("POST", "/game/me/0/more"),
            ("POST", "game/me/0"),
            ("POST", f"/{'x' * 129}/me/0"),
            ("POST", f"/game/{'x' * 129}/0"),
            ("PATCH", "/game/me/0"),
            ("GET", "/game/other"),
            ("PUT", "/game/me/other/0"),
        ],
    )
    def test_e6_any_other_path_is_refused(self, method: str, path: str) -> None:
        assert path_refused(method, path) is RefusalCode.BAD_PATH


class TestBodies:
    @pytest.mark.parametrize("body", ["", " ", "{}", "null", '{"Events":null,"State":null}', '{"other":1}', "{} junk"])
    def test_nothing_is_asked_by_nothing(self, body: str) -> None:
        assert read(body) == StreamRequest("me", 0)

    @pytest.mark.parametrize("number", ["1" * 4_301, "-" + "1" * 4_301, "1" * 10_000])
    def test_an_unknown_member_is_skipped_however_long_its_number_is(self, number: str) -> None:
        assert read(f'{{"other":{number}}}') == StreamRequest("me", 0)

    def test_a_number_that_is_too_long_for_a_member_is_refused_by_name(self) -> None:
        with pytest.raises(StreamRefusal, match=r"Id is a whole number of at most 2\^53-1"):
            read('{"Events":[{"Type":"e","Id":' + "1" * 4_301 + "}]}")
        assert read('{"Wait":' + "1" * 4_301 + "}").wait_s == MAX_WAIT_S

    def test_all_members_are_read_in_any_case(self) -> None:
        request = read(
            json.dumps(
                {
                    "eVENTS": [{"TYPE": "move", "body": "x", "iD": 3, "origin": "spoof"}, {}, None],
                    "state": {"b": "2", "a": None},
                    "INCARNATION": "ab",
                    "wait": 2,
                    "Leave": True,
                    "hashes": [[5, HASH]],
                }
            )
        )
        assert request == StreamRequest(
            "me",
            0,
            (PostedEvent("move", "x", 3), PostedEvent("", ""), PostedEvent("", "")),
            {"a": "", "b": "2"},
            "ab",
            2.0,
            True,
            ((5, HASH),),
        )
        assert list(request.state or ()) == ["a", "b"]

    def test_what_is_no_utf8_is_read_as_in_the_original(self) -> None:
        assert read(b'{"Events":[{"Type":"a\xff","Body":"\\ud800b"}]}').events == (PostedEvent("a\ufffd", "\ufffdb"),)

    @pytest.mark.parametrize(
        "body",
        [
            "not json",
            "[]",
            "1",
            '{"Events":{}}',
            '{"Events":[1]}',
            '{"Events":[{"Type":1}]}',
            '{"Events":[{"Body":[]}]}',
            '{"Events":[{"Id":0}]}',
            '{"Events":[{"Id":-1}]}',
            '{"Events":[{"Id":1.0}]}',
            '{"Events":[{"Id":true}]}',
            '{"Events":[{"Id":9007199254740992}]}',
            '{"State":[]}',
            '{"State":{"a":1}}',
            '{"Incarnation":1}',
            '{"Wait":"1"}',
            '{"Wait":-1}',
            '{"Wait":NaN}',
            '{"Wait":true}',
            '{"Leave":1}',
            '{"Hashes":[1]}',
            '{"Hashes":[[1]]}',
            f'{{"Hashes":[[true,"{HASH}"]]}}',
            '{"Hashes":[[1,"AB"]]}',
            f'{{"Hashes":[[{2**53},"{HASH}"]]}}',
            f'{{"Hashes":[[{-(10**30)},"{HASH}"]]}}',
            json.dumps({"Hashes": [[1, HASH]] * 65}),
            "[" * 8_000,
            '{"Events":[{"Id":' + "9" * 8_000 + "}]}",
        ],
    )
    def test_e6_a_body_that_cannot_be_read_is_refused(self, body: str) -> None:
        assert refused(body) is RefusalCode.BAD_BODY

    @pytest.mark.parametrize("kind", ["_a", "_c", "_d", "_", "_mine", "$connect", "$init", "$"])
    def test_fault_2_types_of_the_server_are_refused(self, kind: str) -> None:
        assert refused(json.dumps({"Events": [{"Type": "move"}, {"Type": kind}]})) is RefusalCode.RESERVED_TYPE

    def test_a_mark_that_is_not_first_is_the_clients_own(self) -> None:
        assert read('{"Events":[{"Type":"a_c$"}]}').events == (PostedEvent("a_c$", ""),)

    def test_a_body_that_is_too_large_is_refused(self) -> None:
        assert read("{}" + " " * (16 * 1024 - 2)) == StreamRequest("me", 0)
        assert refused("{}" + " " * (16 * 1024 - 1)) is RefusalCode.BODY_TOO_LARGE

    def test_a_wait_is_at_most_25_s(self) -> None:
        assert read('{"Wait":1e300}').wait_s == read('{"Wait":26}').wait_s == MAX_WAIT_S

    def test_a_state_above_the_bound_is_refused_with_both_sizes(self) -> None:
        limits, full = StreamLimits(max_state_bytes=9), {"é": "x" * 7}
        assert read_request_untrusted(SYNC, json.dumps({"State": full}).encode(), limits).state == full
        with pytest.raises(StreamRefusal, match="at most 9 bytes here, not 10") as caught:
            read_request_untrusted(SYNC, json.dumps({"State": {**full, "a": ""}}).encode(), limits)
        assert (caught.value.code, caught.value.status) == (RefusalCode.BODY_TOO_LARGE, 413)

    @given(st.binary(max_size=60) | st.text('{}[]":,EventsTypeBodyStateIdHashesWait01_$ ', max_size=80).map(str.encode))
    def test_any_bytes_are_read_or_refused(self, body: bytes) -> None:
        for reader in (read_request_untrusted, read_snapshot_untrusted):
            with suppress(StreamRefusal):
                reader(SYNC, body, LIMITS)

    def test_a_refusal_says_its_code_and_what_to_do(self) -> None:
        refusal = StreamRefusal(RefusalCode.BAD_BODY, "a <body>")
        assert write_refusal(refusal) == '{"code":"bad_body","message":"a \\u003cbody\\u003e"}'
        of_hosts = {RefusalCode.ELSEWHERE: 307, RefusalCode.UNAVAILABLE: 503}
        assert all(400 <= StreamRefusal(code, "").status < 500 for code in RefusalCode if code not in of_hosts)
        assert {code: StreamRefusal(code, "").status for code in of_hosts} == of_hosts

    def test_a_refusal_that_sends_a_client_elsewhere_says_where(self) -> None:
        text = write_refusal(StreamRefusal(RefusalCode.ELSEWHERE, "it is there", "http://s2/game"))
        assert text == '{"code":"elsewhere","message":"it is there","url":"http://s2/game"}'


class TestReplies:
    def test_lists_are_never_null_and_what_was_added_stands_behind(self) -> None:
        text = write_reply(StreamReply(0, (), (), "1", "ab"))
        assert text == '{"T":0,"Events":[],"States":[],"ProxyId":"1","Incarnation":"ab","Acked":0,"Oldest":0}'

    def test_what_is_said_only_if_so_stands_last(self) -> None:
        notice = DesyncNotice(7, {HASH: ("1", "3")})
        text = write_reply(StreamReply(9, (), (), "1", "ab", 4, 2, True, notice, 5))
        assert text.endswith(
            f'"Acked":4,"Oldest":2,"Reset":true,"Desync":{{"T":7,"Hashes":{{"{HASH}":["1","3"]}}}},"Snapshot":5}}'
        )

    def test_go_escapes_are_escaped_and_nothing_else(self) -> None:
        event = StreamEvent(1, "e", "1", 'é<>&\u2028\u2029/\x7f"\\\n\x01😀')
        text = write_reply(StreamReply(1, (event,), (StateRow(2, "1", {"<": "&"}),), "1", "ab"))
        assert '"Body":"é\\u003c\\u003e\\u0026\\u2028\\u2029/\x7f\\"\\\\\\n\\u0001😀"' in text
        assert '"Data":{"\\u003c":"\\u0026"}' in text

    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
    def test_every_text_comes_back_from_a_reply(self, body: str) -> None:
        event: Any = json.loads(write_reply(StreamReply(1, (StreamEvent(1, body, "1", body),), (), "1", "ab")))
        assert event["Events"] == [{"T": 1, "Type": body, "Origin": "1", "Body": body}]
