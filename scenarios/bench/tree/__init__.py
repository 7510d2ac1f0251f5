"""The replicated tree, and etcd beside it in the same run: `baton bench tree`.

Where to start: `run` is the whole course.

    report, table                         what comes of it, as data and as a table
    batonpass, member, loads              three members of ours: the parent's side, the process (started by
                                          `__main__`), the clients inside it
    nodes                                 how much memory a tree of very many nodes needs
    etcd, etcd_certificates, h2load, grpc_bodies    three members of etcd, and load on them
    etcd_backend                          our processes on etcd, `python -m batonpass.scenarios.bench.tree.etcd_backend`
    profiling, profiles                   where the time goes: a run under cProfile, summed up by layer
    run, command                          the course, the command line
"""
