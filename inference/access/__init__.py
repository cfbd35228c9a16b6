"""Who may do what: the gateway's keys."""
