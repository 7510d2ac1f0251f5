"""What all HTTP clients of one process share."""

import functools
import ssl

import httpx

__all__ = ["trusted_authorities"]


@functools.cache
def trusted_authorities() -> ssl.SSLContext:
    """The certificate authorities that servers are believed by, for the argument `verify` of every client.

    Read once in a process: a client that is given none reads some 150 of them, in 17 ms of processor time, even if it
    speaks to loopback only.
    """
    return httpx.create_ssl_context(trust_env=False)
