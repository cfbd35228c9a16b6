"""Run a program that dies when the process that started it dies, even by SIGKILL.

Started by path as `python -I -S tether.py PARENT_PID PROGRAM ARGUMENTS…`; it needs only the
standard library. The wish is made in the new process itself: doing it between fork and exec of
a threaded parent can deadlock. It survives exec, so java is bound as well.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def tethered(arguments: Sequence[str]) -> list[str]:
    """The command line that runs `arguments` bound to the life of the calling thread.

    Call it from the main thread: the kernel watches the thread that starts the child.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *arguments]


def bind_to_parent() -> bool:
    """Let this process die with the one that started it. False where the system refuses."""
    if sys.platform != "linux":
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0)


def main(arguments: list[str]) -> int:
    """Bind this process to its parent, then become the program. Returns only on failure."""
    parent, program = int(arguments[0]), arguments[1:]
    if not bind_to_parent():
        sys.stderr.write(f"prctl failed with errno {ctypes.get_errno()}\n")
        return 1
    # The parent may have died before the wish was made; then nobody would ever end us.
    if os.getppid() != parent:
        return 1
    try:
        os.execvp(program[0], program)  # noqa: S606  # the argument list comes from our own parent
    except OSError as error:
        sys.stderr.write(f"cannot run {program[0]}: {error.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
