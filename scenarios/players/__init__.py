"""Players and masters as programs, and a REST client for them."""
