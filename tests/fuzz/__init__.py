"""Hostile bytes for everything that reads bytes from the network.

- `target`     what a target is, and what counts as a failure: another error, too long, too much memory
- `plain`      plain data (CBOR, JSON) out of bytes, and mutations of it that keep its shape
- `targets/`   one module per package: every function whose name ends in `_untrusted`, and how it is called
- `table`      all of them by name, and the functions that the code has
- `corpus/`    what the fuzzer has found worth keeping, one file per target
- `run`        atheris on every target, within a budget; adds to the corpus (`make fuzz`)

`tests/fuzz/test_fuzz.py` replays the corpus and plays hypothesis against every target, in `make test`.
"""
