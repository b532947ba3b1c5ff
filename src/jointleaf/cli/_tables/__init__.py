"""Tables in files: reading them, detecting what their columns hold, preparing them for a model."""
