"""The server as a whole: composition, dispatch of messages, configuration, status, load."""
