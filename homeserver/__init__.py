"""A homeserver: one member of the instance that keeps the ownership records and the key directory.

    app         the composition root: builds and runs all of it; start reading here
    config      what is read from TOML
    backend     where the replicated rows are kept: our own Raft, or etcd
    store       the replicated rows: procedures through the log, reads from the local copy
    transfers   what is done with the messages of transfers
    company     what came together shares a command of the log, and a signature
    hierarchies what tried to leave its parent or children is moved with them
    births      creating entities: the record, then the first life
    farewells   servers are told that entities have ended, until they have heard
    reminders   what the log gave to a server that may not have heard of it is told again
    ordering    what an order to begin says
    group_news  who waits for the rest of a group hears what has become of it elsewhere
    orders      what was permitted and nobody has begun is ordered again
    due         what reminders and orders repeat, and when
    owners      who owns what, for authorities; players who have gone
    leases      who is alive
    recovery    going on with what dead servers left           homeward      what belongs to who came back
    abroad      the same with what is on servers of other instances
    directory   whose keys belong to which name
    federation  talking to other instances
    node        the parts together: spawning, the link's inbox
    rest/       REST + JSON
    relay       a relay between instances: not a homeserver, but it speaks the same federation

Never imports `simserver`.
"""
