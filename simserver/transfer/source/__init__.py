"""The old authority of a transfer: which entities leave, when, and how often it is tried."""
