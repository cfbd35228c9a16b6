"""Detectors of private data: pure functions of a text and its JSON keys."""
