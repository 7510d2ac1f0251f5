"""Owners of entities: who they are, and whether they are active."""
