"""The `headrace` command.

Each module here with a function `register(app)` adds commands. Modules import only what is light;
a command imports its heavy parts when it runs.
"""
