"""Carries messages between entities, on one server and from server to server. Begin with `post_office`."""
