"""Connections to the home instance and to other servers."""
