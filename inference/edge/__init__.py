"""The HTTP edge under the gateway: broken and slow clients, and whose path is whose."""
