"""The script of a child process (see `child_process`). Before it sets the limits, it imports only the standard library.

The first line of stdin is JSON with the limits, `sys.path` and the name of the module to call; the rest is the request.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import sys
from collections.abc import Mapping

if sys.platform != "win32":
    import resource

__all__ = ["MEMORY_EXIT_CODE", "OUTPUT_EXIT_CODE", "REFUSED", "REPLIED", "ChildRefused", "main", "set_limits"]

REPLIED, REFUSED = b"0", b"1"
"""The first byte of the output says whether a reply or the message of `ChildRefused` follows."""
MEMORY_EXIT_CODE, OUTPUT_EXIT_CODE = 71, 73


class ChildRefused(Exception):
    """The child refuses the request. `str()` is a message for the caller."""


def main() -> int:
    """Read a request from stdin, write the reply to stdout, and return the exit code."""
    head = json.loads(sys.stdin.buffer.readline())
    if sys.platform != "win32":
        signal.alarm(head["seconds"])  # ends this process even if the process that started it was killed
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write fails with EFBIG instead
    set_limits(
        {
            "RLIMIT_AS": head["memory"],
            "RLIMIT_CPU": 2 * head["seconds"],  # several threads may run at once
            "RLIMIT_FSIZE": head["output"],
            "RLIMIT_CORE": 0,
        }
    )
    sys.path[:] = head["path"]
    # This script is `__main__`, but the module raises the class that it imports.
    refused_class = importlib.import_module("wharfinger.sources.child_main").ChildRefused
    try:
        function = importlib.import_module(head["module"]).main
        reply = REPLIED + function(sys.stdin.buffer.read())
    except refused_class as error:
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
    return {errno.EFBIG: OUTPUT_EXIT_CODE, errno.ENOMEM: MEMORY_EXIT_CODE}.get(error.errno or 0, 1)


def set_limits(limits: Mapping[str, int]) -> None:
    """Set limits of this process for the rest of its life, by their names in `resource`.

    A limit that is already lower stays. Limits that the system does not have are left out; Windows has none.
    `RLIMIT_AS` is set only on Linux, because macOS ignores or refuses it.

    Raises:
        OSError, ValueError: Linux refused a limit.
    """
    if sys.platform == "win32":
        return
    for name, value in limits.items():
        resource_id = getattr(resource, name, None)
        if resource_id is None or (name == "RLIMIT_AS" and sys.platform != "linux"):
            continue
        soft, hard = resource.getrlimit(resource_id)
        limit = min([value, *[each for each in (soft, hard) if each != resource.RLIM_INFINITY]])
        # At its limit of processor time, a process gets SIGKILL, but SIGXCPU if its hard limit is higher.
        higher = 1 if name == "RLIMIT_CPU" and limit != hard else 0
        try:
            resource.setrlimit(resource_id, (limit, limit + higher))
        except (OSError, ValueError):
            if sys.platform == "linux":
                raise


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a library may have threads that never end
