"""Who is not a member stays outside, and everybody is told why."""

import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.tree import Member, RefusedByInstance, Replica, ReplicaConfig
from batonpass.tree.net import certificates
from batonpass.tree.net.certificates import Credentials, InstanceSecretTooShort, KeyFileExposed
from batonpass.tree.net.frames import MAX_GREETING_BYTES, Greeting, encode_frame
from batonpass.tree.net.tls import TlsFailed, TlsSession
from tests.tree.instances import PROCEDURES, Instance, configs, count_once, running_instance, until


async def refusal_of(config: ReplicaConfig) -> RefusedByInstance:
    """Start a member that is not wanted; why it ended."""
    with pytest.raises(RefusedByInstance) as refused:
        await Replica(config, PROCEDURES).serve()
    return refused.value


def seen_by(instance: Instance, code: str) -> bool:
    return all(any(r.code == code and r.by_us for r in replica.refusals) for replica in instance.replicas())


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("wrong_kind", {"kind": "simserver"}),
        ("wrong_instance", {"instance": "beta"}),
        ("wrong_machine", {"machine_version": 7}),
        ("not_authenticated", {"secret": b"guessed, and guessed wrong"}),
    ],
)
@pytest.mark.parametrize("name", ["h0", "h1", "h2"])
async def test_a_third_member_with_a_wrong_configuration_is_refused_and_stops(
    tmp_path: Path, name: str, code: str, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            instance = Instance(nursery, configs(tmp_path, 3))
            for member in instance.configs:
                if member != name:
                    await instance.start(member)
            refused = await refusal_of(replace(instance.configs[name], **changes))
            assert refused.code == code
            assert "we refused" in caplog.text
            assert "we were refused by" in caplog.text, "both sides say so, here into the same log"
            if code != "not_authenticated":
                assert seen_by(instance, code)
            leader = await instance.leader()
            assert await leader.submit("count_once", "undisturbed") == 1
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", ["a stranger", "z stranger"])
async def test_a_member_that_nobody_is_configured_with_is_refused(tmp_path: Path, name: str) -> None:
    async with running_instance(tmp_path, 3) as instance:
        known = instance.configs["h0"]
        (own,) = configs(tmp_path, 1)[0].members
        members = (*known.members, Member(name, own.host, own.port))
        stranger = replace(known, name=name, members=members, directory=tmp_path / "stranger")
        refused = await refusal_of(stranger)
        assert refused.code == "unknown_member"
        assert "configured with" in refused.sentence
        assert seen_by(instance, "unknown_member")
        assert instance.replicas()[0].refusal_counts["unknown_member"] >= 1


async def test_a_member_that_declares_other_procedures_is_refused_though_nobody_raised_the_version(
    tmp_path: Path,
) -> None:
    async with running_instance(tmp_path, 2) as instance:
        await (await instance.leader()).submit("count_once", "both are connected")
        known = instance.configs["h1"]
        await instance.stop("h1")
        with pytest.raises(RefusedByInstance) as refused:
            await Replica(known, {**PROCEDURES, "another": count_once}).serve()
        assert refused.value.code == "wrong_machine"
        assert "run one release on all members" in refused.value.sentence


async def test_members_of_two_releases_never_apply_the_same_entries(tmp_path: Path) -> None:
    """Upgraded one by one: the majority goes on by itself, and who is left applies nothing of it before it follows."""
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            instance = Instance(nursery, configs(tmp_path, 3))
            for name in instance.configs:
                await instance.start(name)
            assert await (await instance.leader()).submit("count_once", "before") == 1
            old = instance.running["h2"].replica
            for name in ("h0", "h1"):
                await instance.stop(name)
                instance.configs[name] = replace(instance.configs[name], machine_version=2)
            await until(lambda: old.status.leader is None)
            upgraded = [await instance.start(name) for name in ("h0", "h1")]
            # Each end of each refused connection says so; nobody is stopped by the other's word alone.
            assert await upgraded[0].submit("count_once", "between", timeout_s=60) == 1
            await until(lambda: any(refusal.code == "wrong_machine" for refusal in old.refusals))
            assert (old.status.leader, old.store.row(("counted", "between"))) == (None, None)
            await instance.stop("h2")
            instance.configs["h2"] = replace(instance.configs["h2"], machine_version=2)
            followed = await instance.start("h2")
            assert await followed.submit("count_once", "between", timeout_s=60) == 2
            nursery.cancel_scope.cancel()


async def greet(config: ReplicaConfig, data: bytes) -> bytes:
    """Send something instead of a proper introduction; what comes back until the end."""
    member = config.members[0]
    stream = await trio.open_tcp_stream(member.host, member.port)
    async with stream:
        await stream.send_all(data)
        received = b""
        try:
            while chunk := await stream.receive_some():
                received += chunk
                if b"refused" in received:
                    break
        except trio.BrokenResourceError:
            pass
        return received


async def test_another_protocol_version_is_refused_before_anything_else(tmp_path: Path) -> None:
    async with running_instance(tmp_path, 1) as instance:
        config = instance.configs["h0"]
        reply = await greet(config, encode_frame(Greeting("simserver", "beta", "x", protocol=99).to_data()))
        assert b"wrong_version" in reply


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        encode_frame({"type": "request_vote", "term": 99, "last_log_index": 9, "last_log_term": 9}),
        (MAX_GREETING_BYTES + 1).to_bytes(4, "big"),
    ],
    ids=["HTTP", "TLS at once", "Raft at once", "a long greeting"],
)
async def test_what_is_not_a_greeting_is_hung_up_on_without_an_answer(tmp_path: Path, data: bytes) -> None:
    async with running_instance(tmp_path, 1) as instance:
        replica = await instance.leader()
        term = replica.status.term
        assert await greet(instance.configs["h0"], data) == b""
        assert replica.status.term == term
        assert await replica.submit("count_once", "undisturbed") == 1


async def test_a_member_is_not_refused_by_a_minority(tmp_path: Path) -> None:
    """One member that is configured wrongly must not stop a right one that is alone with it for a while."""
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            instance = Instance(nursery, configs(tmp_path, 3))
            wrong = replace(instance.configs["h2"], instance="beta", directory=tmp_path / "wrong")
            async with trio.open_nursery() as short_lived:
                await short_lived.start(Replica(wrong, PROCEDURES).serve)
                right = await instance.start("h0")
                await until(lambda: bool(right.refusals))
                short_lived.cancel_scope.cancel()
            await instance.start("h1")
            assert await right.submit("count_once", "x", timeout_s=60) == 1
            nursery.cancel_scope.cancel()


def credentials(directory: Path, **changes: Any) -> Credentials:
    values = {"secret": b"0123456789abcdef", "kind": "homeserver", "instance": "alpha", "name": "h1", **changes}
    return Credentials(directory, values.pop("secret"), **values)


def handshake(client: Credentials, server: Credentials) -> tuple[TlsSession, TlsSession]:
    ends = TlsSession(client.client_context, server_side=False), TlsSession(server.server_context, server_side=True)
    for _ in range(4):
        ends[1].feed_untrusted(ends[0].outgoing() if ends[0].feed_untrusted(b"") == b"" else b"")
        ends[0].feed_untrusted(ends[1].outgoing())
    return ends


def test_members_of_one_secret_know_each_other_by_their_uris(tmp_path: Path) -> None:
    client, server = handshake(credentials(tmp_path / "1", name="h1"), credentials(tmp_path / "2", name="h2"))
    assert client.established
    assert server.established
    assert client.peer_uris == ("batonpass://686f6d65736572766572/616c706861/6832",)
    assert server.peer_uris == ("batonpass://686f6d65736572766572/616c706861/6831",)


@pytest.mark.parametrize("years", [(2999, 3000), (1970, 1971)])
def test_a_member_is_known_whatever_year_its_clock_or_that_of_another_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, years: tuple[int, int]
) -> None:
    """As if the clock were before the beginning of all certificates, or after their end."""
    monkeypatch.setattr(certificates, "_NOT_BEFORE", datetime(years[0], 1, 1, tzinfo=UTC))
    monkeypatch.setattr(certificates, "_NOT_AFTER", datetime(years[1], 1, 1, tzinfo=UTC))
    client, server = handshake(credentials(tmp_path / "1", name="h1"), credentials(tmp_path / "2", name="h2"))
    assert client.established
    assert server.established


@pytest.mark.parametrize("changes", [{"secret": b"fedcba9876543210"}, {"instance": "beta"}, {"kind": "simserver"}])
def test_another_secret_instance_or_kind_is_another_authority(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(TlsFailed):
        handshake(credentials(tmp_path / "1", **changes), credentials(tmp_path / "2"))


def test_keys_are_kept_and_are_for_their_owner_only(tmp_path: Path) -> None:
    credentials(tmp_path)
    key = tmp_path / "member.key.pem"
    before = key.read_bytes()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    credentials(tmp_path)
    assert key.read_bytes() == before
    key.chmod(0o640)
    with pytest.raises(KeyFileExposed, match="chmod 600"):
        credentials(tmp_path)


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InstanceSecretTooShort, match="16"):
        credentials(tmp_path, secret=b"short")
