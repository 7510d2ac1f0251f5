"""A homeserver: one member of the instance that keeps the ownership records and the key directory.

    server           the composition root (`main`), exit statuses, relays; start reading here
    rest             REST + JSON
    node             the parts together: how they are wired (`composition`), dispatch of messages, how entities stand
    failover         leases, renewals, takeovers, clocks, entities that are abroad
    placement        the balancer
    transfer         requests, batches, groups, certificates, orders, what is told after a commit
    names            the directory, registration, keys, other instances
    log              the replicated rows (`store`), barriers, positions
    config, backoff  what is read from TOML; when something is tried again

Never imports `simserver`.
"""
