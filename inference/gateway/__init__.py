"""The one URL an agent changes: relays every call and keeps what passed."""
