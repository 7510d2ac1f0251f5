"""`baton up` with fake servers, as a program of its own, so that a test can signal and kill it.

    python fake_up.py DIRECTORY INSTANCES [SERVER=BEHAVIOUR...]

Prints the JSON lines of `baton up --json`; exits like it.
"""

import sys
from pathlib import Path

import click

from batonpass.scenarios.cli import main as cli
from batonpass.scenarios.cli.up_command import JsonScreen, run_until_asked_to_end
from batonpass.scenarios.cluster.topology import ClusterSpec, parse_instances
from tests.scenarios.fakes import fake_launcher


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("instances")
@click.argument("behaviours", nargs=-1)
def fake_up(directory: Path, instances: str, behaviours: tuple[str, ...]) -> int:
    spec = ClusterSpec(parse_instances(instances), simservers=1, directory=directory)
    launcher = fake_launcher(dict(item.split("=", 1) for item in behaviours))
    return run_until_asked_to_end(spec, JsonScreen(), timeout_s=180.0, grace_s=180.0, launcher=launcher)


if __name__ == "__main__":
    cli.cli.add_command(fake_up)
    sys.exit(cli.run_command(["fake-up", *sys.argv[1:]]))
