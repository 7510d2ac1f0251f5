"""The program: composition, exit status, relays."""
