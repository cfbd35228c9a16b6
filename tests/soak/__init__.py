"""Long runs of the real stack under kills and outages. `make soak` runs them."""
