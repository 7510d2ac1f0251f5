"""Hand-overs, searched instead of drawn from seeds.

    search       every reachable state, breadth first; knows nothing of the rest
    handover     the small model: three servers, a network without order, a budget of faults; start reading here
    host         one real server of either kind that can be stopped, copied and compared
    copying      copies of such servers
    memory       what was met, by number, and what was done to it; so that nothing is computed twice
    keys         keys that are the same in every run           words    how a transcript tells what happened
    command      `baton simulate transfers-search`

docs/reference/simulation.md says what is searched and what it found.
"""
