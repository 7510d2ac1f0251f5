"""The programs that `baton bench scene` runs: one per subject, each with the bytes that `streams` makes."""
