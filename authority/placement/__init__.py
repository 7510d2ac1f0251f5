"""Where entities should be: policies and the limits on what they may move."""
