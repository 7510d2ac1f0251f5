"""The programs that measure: `python -m batonpass.scenarios.bench.transfers.workers.on_NAME WORK SECONDS`.

on_batonpass    a fresh cluster: three homeservers, two simulation servers
on_floor        two or three processes that exchange datagrams and do the cryptography of a hand-over, and nothing else
"""
