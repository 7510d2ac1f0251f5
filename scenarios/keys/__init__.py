"""`baton keys`: the keys of servers, kept here in files or by a server that runs.

places      where a command finds the keys it is about: a directory, a configuration, a running server
tokens      `baton tokens`: create, show, revoke, issuer
commands    new, show, rotate, revoke, export, reset, forget
forms       how keys are shown and exported
"""
