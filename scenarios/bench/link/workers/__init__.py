"""What is measured: one program per subject. Each starts its own other end as a second process on the same core.

- `rtt`     100 bytes there and back, one at a time: the median, in microseconds
- `echo`    100 bytes there and back, `conversation.WINDOW` on their way at a time: how many come back in a second
- `bulk`    messages of 1 MiB one way, `conversation.BULK_WINDOW` unanswered at a time: megabytes per second
- `bulk-1200`   the same in datagrams of at most 1200 bytes, as a network outside this machine carries them

Clients and servers speak in messages; a library that has only a stream puts four bytes of length before each.
"""
