"""Whole clusters in one thread: real consensus code on a virtual clock, network and disk, all from one seed.

linearizability    judge a history of calls and answers (Wing and Gong, Lowe); knows nothing of the rest
registers          what the clients of a simulation do: put, get, compare-and-swap and append, on a few keys
disk               a file system in memory that forgets what was not synced, tears writes, and fails on demand
"""
