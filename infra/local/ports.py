"""Which TCP ports are free, and the sentence for one that is not."""

import socket

from schemas.errors import ConfigError

#: How many ports above a taken one are looked at for an alternative.
_NUM_CANDIDATES = 200


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """True when a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port whose last connection lingers in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def free_ports(number: int, host: str = "127.0.0.1") -> list[int]:
    """That many different ports nobody listens on. Another process may take one before you do."""
    probes = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(number)]
    try:
        for probe in probes:
            probe.bind((host, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def alternative_to(port: int, host: str = "127.0.0.1", avoid: frozenset[int] = frozenset()) -> int:
    """A free port close above the taken one, so that it is easy to remember."""
    for candidate in range(port + 1, min(port + 1 + _NUM_CANDIDATES, 65_536)):
        if candidate not in avoid and is_free(candidate, host):
            return candidate
    return free_ports(1, host)[0]


def require_free(
    port: int,
    *,
    what: str,
    option: str,
    host: str = "127.0.0.1",
    avoid: frozenset[int] = frozenset(),
) -> None:
    """Raise the ConfigError that says how to go on when `port` is taken.

    `what` names the service, `option` the command-line option that moves it, `avoid` the ports
    that other services of the same stack are about to take.
    """
    if is_free(port, host):
        return
    other = alternative_to(port, host, avoid)
    raise ConfigError(
        f"Port {port} on {host}, wanted for {what}, is taken by another process. "
        f"Stop that process, or run the same command with {option} {other} (free now)."
    )
