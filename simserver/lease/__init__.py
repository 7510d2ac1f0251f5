"""The lease of this server: keeping it, renewing it, and where the home log is known to stand."""
