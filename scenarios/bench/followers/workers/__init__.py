"""The programs that `baton bench followers` runs: each is one controller and many followers, a process each."""
