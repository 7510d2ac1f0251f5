"""The old authority of a transfer: who leaves, when, and how often it is tried."""
