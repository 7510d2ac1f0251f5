"""Tasks: pieces of work that an actor or a trio task owns and awaits (Elixir's `Task`)."""
