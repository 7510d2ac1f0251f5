"""Transfers as home decides them: requests, batches, groups, certificates, what is told after a commit."""
