"""A world to play in, in a browser: robots on a floor that several simulation servers share.

world    the rules: how robots drive, which server has which part of the floor
start    what there is at first, and the address of the page
page     the page: a top-down view that is played with keys or by touch
"""
