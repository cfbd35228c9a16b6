"""What runs inside vLLM: writing weights in place, reading them back, labelling answers."""
