"""Messages between servers, and how they are batched, encoded, sealed and traced."""
