"""Decides which version is served where. All of its state is derived from topics."""
