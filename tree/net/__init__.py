"""Connections between members: TLS, frames, certificates, the roster, membership."""
