"""What differs between the wire formats of LLM APIs once a call was captured."""
