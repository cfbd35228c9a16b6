"""The LLM APIs that calls go to."""
