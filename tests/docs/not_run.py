"""The commands of pages that no test runs as they stand there, by how they begin, each with its reason."""

from typing import Final

NOT_RUN: Final = {
    # Of the machine, or of what surrounds the tests.
    ". .venv/bin/activate": "the tests run in that environment",
    "make ": "a check of the whole project, of which this is a part; tests/scenarios/cases runs what `make run` runs",
    ".venv/bin/pytest": "tests that run beside this one",
    "pip install": "what it installs is installed",
    "kubectl": "needs a Kubernetes; tests/docs/test_deploy_files.py reads what it would be given",
    "baton drain alpha.s-0": "a pod of a Kubernetes; guides/operations.md drains a server that is there",
    "etcdctl": "needs an etcd that asks who one is; tests/tree/etcd has batonpass use one",
    # Of several machines.
    "baton homeserver --config h1.toml": "elsewhere; tests/scenarios/cluster/test_cluster_docs.py has its file",
    "baton simserver --config s1.toml": "the same",
    "baton relay --config r1.toml": "the same",
    "baton simserver --config alpha.s1.toml": "a server whose keys were lost, with others; tests/crypto has resets",
    "baton server remove alpha.s1 --url http://10.0.0.1:7100": "of another machine; the page removes one of this one",
    # Needs a state of the cluster that the other pages must not find.
    "baton keys reset": "the server that runs would be without keys; tests/scenarios/keys/test_keys_cli.py resets one",
    "baton why": "needs a hand-over that hangs; tests/docs/test_page_commands_run.py prints such an answer",
    "baton regions begin": "needs the world of its page; tests/scenarios/remote/test_regions_cli.py begins a table",
    "curl -X POST $BATON_URL/v1/entities": "the same; tests/docs/test_page_blocks.py runs that world",
    "curl -X PUT $BATON_URL/v1/players": "of a player that is there; explanation/followers.md has the same request",
    "baton shows ": "needs a world with shows; tests/scenarios/remote/test_shows_cli.py runs them",
    "curl $H1/v1/entities": "the same; tests/simserver/sync/shows creates one",
    # Runs until it is ended.
    "python up.py": "of the tutorial; tests/tutorial/test_first_shared_world.py runs it",
    "python -m batonpass.scenarios.timeline.circles_server": "tests/scenarios/timeline/test_circles_server.py has it",
    # Takes minutes or hours.
    "baton run followers": "takes 20 s; tests/scenarios/followers runs shorter ones",
    "baton run lockstep": "takes a minute; tests/scenarios/lockstep runs shorter ones",
    "baton run scenes": "takes a minute; tests/scenarios/scenes runs shorter ones",
    "baton run sectors": "takes a minute; tests/scenarios/sectors runs shorter ones",
    "baton run timeline": "takes 20 s; tests/scenarios/timeline runs shorter ones",
    "baton chaos tree": "takes minutes; tests/scenarios/chaos/test_chaos_tree.py has fewer faults",
    "baton chaos transfers": "takes hours; tests/scenarios/chaos/test_chaos_handovers.py has some of the steps",
    "baton simulate --seeds 1000": "takes hours; tests/scenarios/simulation/servers has fewer seeds",
    "baton simulate servers": "takes minutes; tests/scenarios/simulation/servers has fewer seeds",
    "baton simulate raft": "takes minutes; tests/scenarios/simulation/test_simulation_command.py has fewer seeds",
    "baton simulate transfers-search": "takes minutes; tests/scenarios/simulation/test_transfers_search.py has a part",
    "baton simulate machines --seeds 1000": "takes minutes; tests/scenarios/simulation/machines has fewer seeds",
    "baton simulate machines --mix deaths": "the same",
}
