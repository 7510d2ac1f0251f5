"""What servers of the earlier release have on their disks is read, and they go on from it."""

import hashlib
import json
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.trust.signed_positions import LogPlace
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.pin_file import PinFile
from batonpass.homeserver.config import HomeserverConfig
from batonpass.homeserver.placement.balancer import load_policy
from batonpass.scenarios.cluster.blueprint import lay_out, remembered_spec
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.scenarios.cluster.token_issuer import believed_in
from batonpass.simserver.durability.large_checkpoints import LargeCheckpoints
from batonpass.simserver.durability.ledger import Ledger
from batonpass.simserver.durability.put_aside import PutAside, read_aside
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.custody_log import Stint
from batonpass.simserver.lease.keeper import Nonces
from batonpass.simserver.lease.log_watermark import LogWatermark
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.transfer.target.staged_states import Stages
from batonpass.simserver.world.api import load_world
from tests.earlier_release.running import SIMSERVERS, cluster_in, running
from tests.earlier_release.vectors import recorded, unpacked
from tests.homeserver.served import new_ports
from tests.scenarios.asked import answered, refused
from tests.simserver.ports import TrioClock

DISK: Final = recorded("disk")
ANSWERS: Final = recorded("rest")["answers"]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return cluster_in(tmp_path)


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Files of simulation servers that the cluster did not come to write."""
    return unpacked("parts", tmp_path)


# --- configurations ---------------------------------------------------------------------------------------------------


def test_the_configurations_of_a_cluster_are_read_with_the_names_that_modules_had(cluster: Path) -> None:
    home = HomeserverConfig.load(cluster / "alpha.h1" / "config.toml")
    assert (home.name, home.lease_term_s, home.placement.policy) == ("alpha.h1", 6.0, "authority.placement:relieve")
    assert callable(load_policy(home.placement.policy))
    for name in SIMSERVERS:
        config = SimserverConfig.load(cluster / name / "config.toml")
        assert (config.name, config.world) == (name, "simserver.balls:Balls")
        assert load_world(config.world, config.world_options).spawn("ball", {})


def test_a_cluster_is_laid_out_again_with_its_ports_keys_and_secrets(cluster: Path) -> None:
    before = {path: path.read_bytes() for path in cluster.rglob("*") if path.is_file() and path.name != "config.toml"}
    ports = json.loads((cluster / "cluster.json").read_text())["ports"]
    spec = remembered_spec(cluster)
    assert spec is not None
    with patch.object(PortAllocator, "claim", lambda _self, _port: None):
        plan = lay_out(spec, cluster, new_ports())
    changed = {path for path in before if path.name != "cluster.json" and path.read_bytes() != before[path]}
    # Where there were random texts, there are tokens now, which end.
    assert {path for path in changed if "-token" not in path.name} == set()
    believed = believed_in(cluster)
    for path in changed:
        audience = path.name.partition(".")[0] + ("/simservers" if "simserver" in path.name else "")
        believed.check_untrusted(path.read_text().strip(), audience, Clock().unix_s())
    assert json.loads((cluster / "cluster.json").read_text())["ports"] == ports
    assert sorted(server.name for server in plan.servers) == sorted(ports)


# --- single files -----------------------------------------------------------------------------------------------------


async def ledger_of(name: str, directory: Path) -> Any:
    """Everything that a ledger says, as it was recorded."""
    ledger = Ledger(name, directory)
    async with trio.open_nursery() as nursery:
        await nursery.start(ledger.serve)
        checkpoints = {entity: ledger.checkpoint_of(entity) for entity, _ in ledger.all_checkpoints()}
        said = {
            "lived": {entity: list(fence) for entity, fence in ledger.all_lived()},
            "moved": {entity: [to, *fence] for entity, to, fence in ledger.moved()},
            "checkpoints": {
                entity: [*found[0], found[1], sha(found[2])] for entity, found in checkpoints.items() if found
            },
            "handed_over": {
                entity: [*fence, tick, sha(state)] for entity, fence, tick, state in ledger.all_handed_over()
            },
            "interrupted": sorted(row.entity for row in ledger.interrupted),
        }
        nursery.cancel_scope.cancel()
    return said


LEDGER: Final = ("lived", "moved", "checkpoints", "handed_over", "interrupted")


@pytest.mark.parametrize("name", SIMSERVERS)
async def test_a_ledger_knows_what_lived_here_and_its_checkpoints(cluster: Path, name: str) -> None:
    said = await ledger_of(name, cluster / name / "state" / "tree")
    assert said == {part: DISK[name][part] for part in LEDGER}


async def test_a_ledger_knows_what_was_handed_over(parts: Path) -> None:
    assert await ledger_of("alpha.s9", parts / "ledger") == DISK["ledger"]


def test_staged_states_are_read(cluster: Path) -> None:
    stages = list(Stages(cluster / "alpha.s2" / "state" / "stages"))
    names = ("transfer_id", "entity", "source", "epoch", "sub", "kind", "tick", "state_hash")
    read = [{name: getattr(stage, name) for name in names} | {"state": sha(stage.state)} for stage in stages]
    assert read == DISK["alpha.s2"]["stages"] != []


def test_keys_and_pins_are_read(cluster: Path) -> None:
    for name in ("alpha.h1", *SIMSERVERS):
        keys = cluster / name / "state" / "keys"
        assert sorted(KeyStore(keys).claim(name).identity.public.kids) == DISK[name]["kids"]
    pinned = PinFile(cluster / "alpha.s1" / "state" / "keys" / "pins.jsonl").load()
    assert set(pinned) == {line["name"] for line in DISK["alpha.s1"]["pins"]}


def test_the_word_of_the_home_about_its_log_is_read(cluster: Path) -> None:
    log_watermark = LogWatermark(TrioClock(), cluster / "alpha.s1" / "state" / "home_log")
    position, places = DISK["alpha.s1"]["home_log"].split()
    assert log_watermark.position == position
    assert [LogPlace.read(place) for place in log_watermark.places.split()] == [LogPlace.read(places)]


def test_the_secrets_of_incarnations_are_read(cluster: Path) -> None:
    known = {int(number): nonce for number, nonce in json.loads(DISK["alpha.s2"]["lease"]).items()}
    assert Nonces(cluster / "alpha.s2" / "state" / "lease.json").read() == known


def test_the_custody_that_was_written_down_is_read(parts: Path) -> None:
    lines = (parts / "custody.jsonl").read_text().splitlines()
    assert [Stint(**json.loads(line)).row() for line in lines][-1:] == DISK["custody"]


def test_what_was_put_aside_is_read(parts: Path) -> None:
    directory = parts / "put_aside"
    read = [[a.entity, a.epoch, a.sub, a.tick, a.state_hash, a.at_s, a.why] for _, a in read_aside(directory)]
    assert sorted(read) == sorted(DISK["put_aside"])
    newest = PutAside(directory).of("alpha.ball-1", 0, Fence(9))
    assert newest is not None
    assert (newest.fence, newest.tick, newest.state) == (Fence(4), 77, b"state one")


def test_deaths_are_read_and_the_entity_that_was_being_simulated_is_found(parts: Path) -> None:
    before = DISK["black_box"]
    box = CrashGuard(parts / "black_box", lambda: before["now_s"] + 1.0)
    assert {entity: box.deaths(entity) for entity in before["deaths"]} == before["deaths"]
    entity, epoch = before["simulating"]
    assert box.deaths(entity) == [epoch]


def test_large_checkpoints_are_read(parts: Path) -> None:
    large = LargeCheckpoints(parts / "large")
    rows = {entity: large.read(entity) for entity in large.names()}
    assert {
        entity: [row["epoch"], row["sub"], row["tick"], sha(row["state"])] for entity, row in rows.items() if row
    } == DISK["large"]


# --- all of it --------------------------------------------------------------------------------------------------------


def body_of(at: str, path: str) -> Any:
    """What the earlier release answered, soon before its servers were killed."""
    return next(one["body"] for one in ANSWERS if (one["at"], one["path"]) == (at, path))


KEPT: Final = ("kind", "owner", "master", "rule", "orphans", "on_leave", "parent", "children", "locks", "standing")


async def test_a_cluster_goes_on_with_its_entities_inputs_and_epochs(cluster: Path) -> None:
    checkpoints = DISK["alpha.s1"]["checkpoints"]
    before = {entity: body_of("alpha.h1", f"/v1/entities/{entity}") for entity in DISK["alpha.s1"]["lived"]}
    async with running(cluster) as urls:
        for entity, record in before.items():
            if record["orphans"] == "despawn":
                # Its authority died.
                await refused(f"{urls['alpha.h1']}/v1/entities/{entity}", "not_found")
                continue
            now = await until_simulated(urls, entity, record["standing"])
            assert {name: now[name] for name in KEPT} == {name: record[name] for name in KEPT}
            assert now["epoch"] >= record["epoch"]
            here = await answered(
                f"{urls[now['authority']]}/v1/local/entities/{entity}",
                lambda here, now=now: here["epoch"] == now["epoch"],  # type: ignore[misc]
            )
            assert here["tick"] >= checkpoints[entity][2]
            assert here["sources"] == body_of("alpha.s1", f"/v1/local/entities/{entity}")["sources"]


async def until_simulated(urls: dict[str, str], entity: str, standing: str) -> Any:
    """The record of an entity when it stands as it did before: a moment later its server may be unreachable again."""
    return await answered(f"{urls['alpha.h1']}/v1/entities/{entity}", lambda record: record["standing"] == standing)
