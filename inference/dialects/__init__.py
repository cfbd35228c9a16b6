"""What differs between the wire formats of LLM APIs."""
