"""Boids as a batch world: a flock in arrays of numpy, in one call per tick (`pip install batonpass[arrays]`).

flock       the rules, over arrays alone
world       the batch world
command     `baton run boids`: a flock on a cluster, and a picture of it
"""
