"""Replay: process again what the log still holds. `plan` decides, `run` does it, `one` does one."""
