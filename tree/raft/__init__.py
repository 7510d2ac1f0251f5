"""The fence around PySyncObj: the only room that imports it (docs/decisions/0001-raft-fence.md)."""
