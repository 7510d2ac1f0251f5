"""`baton --cluster DIR`: where a cluster of `baton up --dir DIR` is, whom to believe there, and with which tokens.

It says what commands are told by variables of the environment otherwise, for those that are not set.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from batonpass.scenarios.cluster.blueprint import client_token_in, homeserver_urls_in, operator_token_in
from batonpass.scenarios.cluster.certificates import authority_in

__all__ = ["named_cluster", "variables_of"]

_KNOCK_S: Final = 0.25


def variables_of(directory: Path) -> dict[str, str]:
    """What the commands of `baton` need to know of the first instance of a cluster.

    Raises:
        DirectoryUnusable: what the directory says of the cluster cannot be read.
        click.UsageError: there is none.
    """
    directory = directory.absolute()
    found = homeserver_urls_in(directory)
    if found is None:
        text = f"--cluster: {directory} has no cluster: give the directory that `baton up --dir` was given"
        raise click.UsageError(text)
    instance, urls = found
    known = {
        "BATON_URL": next(filter(_listens, urls), urls[0]),
        "BATON_TOKEN_FILE": str(client_token_in(directory, instance)),
        "BATON_OPERATOR_TOKEN_FILE": str(operator_token_in(directory, instance)),
    }
    if urls[0].startswith("https:"):
        known["BATON_CA_FILE"] = str(authority_in(directory))
    return known


def _listens(url: str) -> bool:
    """Whether somebody is there: a homeserver of a cluster may be dead."""
    place = urlsplit(url)
    try:
        with socket.create_connection((place.hostname, place.port or 0), _KNOCK_S):
            return True
    except OSError:
        return False


@contextmanager
def named_cluster(directory: Path) -> Iterator[None]:
    """Around a command: the variables that are not set are those of this cluster."""
    given = {name: value for name, value in variables_of(directory).items() if not os.environ.get(name)}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
