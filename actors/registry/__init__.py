"""Registries of a program's own: unique or duplicate keys with values (Elixir's `Registry`)."""
