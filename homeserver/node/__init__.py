"""The parts of a homeserver together: dispatch of messages, and how entities stand."""
