"""Transfers of authority: `source` lets entities go, `target` takes them."""
