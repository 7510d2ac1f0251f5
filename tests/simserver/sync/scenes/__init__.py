"""Scenes as entities, and their members."""
