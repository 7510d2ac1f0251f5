"""Certificates, pinned keys, enrolment and signed positions of the log."""
