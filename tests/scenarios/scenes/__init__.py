"""`baton run scenes`."""
