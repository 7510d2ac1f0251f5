"""The new authority of a transfer: offers, staged states, activation, what is unresolved."""
