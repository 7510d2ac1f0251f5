"""A renderer and scenes that exchange frames over streams."""
