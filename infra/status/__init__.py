"""What is behind, by how much, since when and until when; what waits, and why."""
