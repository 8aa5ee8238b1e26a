"""The script of a child process (see `child_process`). Until the limits are set, it imports the standard library only.

The first line of stdin is JSON with the limits, the path of modules and the name of one; the rest is the request.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

__all__ = ["MEMORY_EXIT_CODE", "OUTPUT_EXIT_CODE", "REFUSED", "REPLIED", "ChildRefused", "main"]

REPLIED, REFUSED = b"0", b"1"
"""The first byte of the output says whether a reply or the message of `ChildRefused` follows."""
MEMORY_EXIT_CODE, OUTPUT_EXIT_CODE = 71, 73


class ChildRefused(Exception):
    """The child cannot do what it was asked. `str()` is a message for the caller."""


def main() -> int:
    """Read a request from stdin, and write the reply to stdout. Returns the exit code."""
    head = json.loads(sys.stdin.buffer.readline())
    _set_limits(head["seconds"], head["memory"], head["output"])
    sys.path[:] = head["path"]
    # This script is `__main__`, but the module raises the class that it imports.
    refused = importlib.import_module("wharfinger.sources.child_main").ChildRefused
    try:
        function = importlib.import_module(head["module"]).main
        reply = REPLIED + function(sys.stdin.buffer.read())
    except refused as error:
        reply = REFUSED + str(error).encode("utf-8", "replace")
    except MemoryError:
        return MEMORY_EXIT_CODE
    except OSError as error:
        return _exit_code_of(error)
    try:
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()
    except OSError as error:
        return _exit_code_of(error)
    return 0


def _exit_code_of(error: OSError) -> int:
    import errno

    return {errno.EFBIG: OUTPUT_EXIT_CODE, errno.ENOMEM: MEMORY_EXIT_CODE}.get(error.errno or 0, 1)


def _set_limits(seconds: int, memory: int, output: int) -> None:
    """Limit this process. SIGALRM ends it even if the process that started it was killed."""
    if sys.platform == "win32":
        return
    import resource
    import signal

    signal.alarm(seconds)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write fails with EFBIG instead
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, 2 * seconds),  # several threads may run at once
        (resource.RLIMIT_FSIZE, output),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a library may have threads that never end
