"""homeserver"""
