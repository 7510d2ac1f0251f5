"""What is done with a whole cluster: start it, move authority about in it, measure, report. And the `baton` command.

A cluster of real processes
    topology        what a cluster consists of            blueprint   as files: configurations, secrets, directories
    ports           free ones that stay free              processes   child processes that never outlive their parent
    orphans         the child's half of that              cluster     all of it as one `async with LocalCluster.start`
    cluster_events  what a cluster tells while it runs    up          `baton up`

Scenarios
    cases           `baton run cases`: the three transfer cases on the wire
    sectors         `baton run sectors`: aircraft crossing borders (with airspace, sectors_map, tracks, flights)
    players, client clients of the servers: numbered inputs over the sealed link, REST
    masters         players that answer who may have their entities
    custody         judging the servers' custody logs      evidence    collecting them at the end of a run
    measure         from a transfer's trace to numbers     report/     as table, JSON and HTML

Command line
    entry           where `baton` begins                  cli          start reading here
    screen          progress bars                         foreseeable  errors, and which status
    exits           its statuses

Nothing below imports this package.
"""
