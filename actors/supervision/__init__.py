"""Kinds of supervision above the kernel: dynamic and partitioned supervisors, applications, signals."""
