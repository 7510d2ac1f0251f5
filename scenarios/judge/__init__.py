"""What is measured and judged of a run: custody, latencies, invariants."""
