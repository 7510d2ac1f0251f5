"""Benchmarks: the replicated tree, and etcd beside it in the same run. `baton bench tree`.

Where to start: `run` is the whole course; `rows` says what is in the table and what is demanded.

    workloads, rows, judgement, report    what is measured and what comes of it (pure)
    subject                               what can be measured
    batonpass, member, loads              three members of ours: the parent's side, the process (started by
                                          `__main__`), the clients inside it
    etcd, etcd_certificates, h2load, grpc_bodies    three members of etcd, and load on them
    etcd_backend                          our processes on etcd, `python -m scenarios.bench.etcd_backend`
    machine, process_facts               what it was measured on
    run, table, command                   the course, the table, the command line
"""
