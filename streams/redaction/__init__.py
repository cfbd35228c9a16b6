"""Raw events become clean ones: assembled, placed in their trajectory, redacted, permitted."""
