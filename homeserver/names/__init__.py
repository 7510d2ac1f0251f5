"""Names: the directory, registration, keys, and other instances."""
