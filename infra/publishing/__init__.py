"""Files that people have, as events for `raw.events.v1`.

`documents` cuts a file into entries, `formats` tells what the entries are, `conversations` and
`atdp` make events of them, `sending` puts events on the topic. All but `sending` are pure.
"""
