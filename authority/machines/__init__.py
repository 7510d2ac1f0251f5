"""The protocol machines of a transfer, a lease and a takeover: pure, with time as an input."""
