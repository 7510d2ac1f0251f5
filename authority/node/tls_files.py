"""The files by which a server proves itself over HTTP and believes others, as its configuration names them."""

from functools import partial

from batonpass.actors.http.client import believe
from batonpass.actors.http.tls import ServerContext, server_context
from batonpass.authority.node.config import TlsSettings
from batonpass.authority.node.plugins import or_config_error

__all__ = ["believe_authorities", "context_of"]


def context_of(files: TlsSettings | None) -> ServerContext | None:
    """What a server proves itself by; None if it does not.

    Raises:
        ConfigError: the files cannot be read, or do not belong together.
    """
    return None if files is None else or_config_error(partial(server_context, files.certificate, files.key), "tls")


def believe_authorities(files: TlsSettings | None) -> None:
    """Have all clients of this process believe the authorities that these files name; else they believe as before.

    Raises:
        ConfigError: the file of authorities cannot be read, or has none.
    """
    if files is not None:
        or_config_error(partial(believe, files.authorities), "tls.authorities")
