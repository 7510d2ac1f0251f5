"""`baton bench clients`: clients of the players' door, with Colyseus and a bare WebSocket beside it in the same run."""
