"""Staged mode on real processes: whoever dies at the commit, the state is there, also with the old authority gone."""

from functools import partial
from pathlib import Path

import cbor2
import trio

from batonpass.actors.base.breakpoints import ENVIRONMENT
from batonpass.scenarios.cases.cases import open_run
from batonpass.scenarios.chaos.gate import Gate
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.judge.evidence import collect
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, come, limited

pytestmark = limited

SPEC = ClusterSpec(instances={"alpha": 1}, simservers=2, log_level="WARNING")
ENTITY = "alpha.kept"
PUSHES = 20


async def test_failures_row_13_the_new_authority_begins_from_its_disk_though_the_old_one_is_gone(
    tmp_path: Path,
) -> None:
    gate = Gate(tmp_path / "steps")

    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(gate.serve)
            starting = LocalCluster.start(SPEC, environment={ENVIRONMENT: str(gate.path)}, grace_s=0.0)
            async with starting as cluster, open_run(cluster, 7, patience_s=PATIENCE_S) as run:
                await run.spawn(ENTITY, "alpha.s1")
                stream = run.players.streams[ENTITY]
                for number in range(PUSHES):
                    assert run.players.push(stream, cbor2.dumps([number, 0, 0]))
                    run.pushed[ENTITY][0] += number
                assert await run.players.drained(PATIENCE_S)

                # The log has decided; the new authority has been told, and has not begun.
                hold = gate.hold("permitted", "staged-0001")
                body = {"to": "alpha.s2", "transfer_id": "staged-0001", "mode": "staged", "transport": "link"}
                ask = partial(run.client.call, "alpha", "POST", f"/v1/entities/{ENTITY}/transfers", body)
                await come(ask, what="that the transfer is begun")
                await hold.reached.wait()
                await cluster.kill("alpha.s2")
                await cluster.kill("alpha.s1")
                gate.reset()
                await cluster.restart("alpha.s2", same_code=True)
                run.simservers.pop("alpha.s1")
                run.entities[ENTITY] = "alpha.s2"

                # It is simulated again, after exactly what was applied, and takes the next input.
                assert run.players.push(stream, cbor2.dumps([5, 0, 0]))
                run.pushed[ENTITY][0] += 5
                assert await run.players.drained(PATIENCE_S)
                evidence = await collect(run.client, run.simservers, run.players, run.entities, run.world_check)
            nursery.cancel_scope.cancel()
    assert evidence.applied[ENTITY] == PUSHES + 1
    assert (evidence.invariants.inputs_lost, evidence.invariants.inputs_duplicated) == (0, 0)
