"""The kernel: processes, refs, names, servers, supervisors, timers, links, and the system that runs them."""
