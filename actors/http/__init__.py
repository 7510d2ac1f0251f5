"""HTTP: a server and a client with bounds for everything that a stranger could fill."""
