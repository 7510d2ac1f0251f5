"""Aircraft that cross sector borders: every border is a hand-over."""
