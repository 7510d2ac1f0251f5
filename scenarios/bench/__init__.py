"""Benchmarks: ours, and others that do the same work in the same run.

tree                        the replicated tree, beside etcd: `baton bench tree`
actors, events, followers, link, scene, timeline, transfers   courses that are run side by side: `baton bench actors`,
    and so on
drain                       how long it takes to empty a server of very many entities

workloads, rows, judgement    what is measured, what is in a table and demanded, and whether it is met (pure)
subject                       what can be measured
comparison, comparison_table, side_by_side, course_command    a course: its figures, table, run and command
peers, loops                  other libraries, each in an environment of its own; what their workers have in common
machine, process_facts        what it was measured on
"""
