"""`headrace demo`: recorded conversations played through the real pipeline, then checked."""
