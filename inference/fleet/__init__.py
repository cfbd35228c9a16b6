"""Several gateway processes on one port: who starts them, and what they say with one voice."""
