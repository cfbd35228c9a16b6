"""What is kept of a call, and under which ids."""
