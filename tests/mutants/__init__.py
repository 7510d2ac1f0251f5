"""Mutants: the system with one guard taken away each. What finds nothing must show that it can find something.

tree       replicas, for `baton simulate raft`            machines   for `baton simulate machines`
search     for `baton simulate transfers-search`          servers    for `baton simulate servers`
runs       campaigns of mutants, and `python -m tests.mutants`

The pages of docs/ that describe the simulations say which seeds find which of them.
"""
