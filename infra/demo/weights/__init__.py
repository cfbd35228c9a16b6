"""The demo of weights as events: an agent's answers change while it works, and change back."""
