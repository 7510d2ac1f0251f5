"""Room tree/member."""
