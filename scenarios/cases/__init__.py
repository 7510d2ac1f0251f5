"""The transfer cases of the seed documents: hops and latency."""
