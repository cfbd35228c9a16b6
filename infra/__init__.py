"""The command line and the local stack. May import anything; nothing imports it."""
