"""homeserver/rest"""
