"""Tables in files: reading them, what their columns hold, and how they are made ready."""
