"""Local clusters: processes, ports, topology, events, control."""
