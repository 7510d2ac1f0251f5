"""Simulation servers, homeservers and players that lack one guard each; `table` has all of them."""
