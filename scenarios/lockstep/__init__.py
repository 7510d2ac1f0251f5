"""`baton run lockstep`: many clients follow one event stream, which is handed over and loses its server meanwhile.

plan      who joins when and posts what, from a seed (pure)
game      what all of them compute
way       the network of one client: what is lost and late on it
player    one client, and what it has seen
judge     whether all have seen the same, and nothing is lost, doubled or in another order (pure)
hosted_stream  the stream of a run: opened, handed over, and its server killed
run       the cluster, the faults, and the command
"""
