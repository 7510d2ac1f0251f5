"""The programs that are measured, one process each, and the load on them."""
