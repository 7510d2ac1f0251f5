"""Plain data: paths, payloads, CBOR, JSON, and what work on them costs. Pure."""
