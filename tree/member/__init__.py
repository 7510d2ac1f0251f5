"""A member of an instance: replica, reads, submissions, watching, stewardship."""
