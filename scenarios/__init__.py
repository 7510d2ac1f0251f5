"""What is done with a whole cluster: start it, move authority about in it, measure, report. And the `baton` command.

    cli           the command `baton`: `entry` and `main`; start reading here
    cluster       a cluster of real processes: topology, blueprint, processes, control
    players       players, masters and a REST client as programs
    cases         `baton run cases`: the three transfer cases on the wire
    pushing       `baton run boxes`: robots that push boxes over a border
    sectors       `baton run sectors`: aircraft crossing borders
    lockstep      `baton run lockstep`: clients of one event stream that compute the same
    scenes        `baton run scenes`: a renderer and its scenes, double-buffered and naive
    timeline      `baton run timeline`: peers of one retroactive timeline; worlds as examples
    judge         custody logs judged, latencies measured
    report        as table, JSON and HTML
    remote, keys  commands that talk to a running instance; keys of servers
    simulation    clusters on virtual clocks, networks and disks
    chaos, bench  faults on real processes; measurements beside peers
    common        options, exit statuses, errors

Nothing below imports this package.
"""
