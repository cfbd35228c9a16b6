"""How each agent program is told to call the gateway."""
