"""What is said on the bus, where it is said, and the one way to say it.

The common floor: services import this package and never each other.
"""
