"""actors/link"""
