"""Simulations that are kept equal by a shared stream of events, instead of by one authority for each entity.

lockstep   the client's side: the driver of a game, its generator and hashes, the stream's follower; pure
"""
