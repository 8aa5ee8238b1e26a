"""What every Python client under test does: connect, say so, and ask what a line of stdin says for so many seconds.

A line holds the method, the params in turn, how many are in flight, the seconds and the most requests; the answer is
a line of stdout. `client.mjs` does the same for TypeScript. Every answer's kind and length is looked at.
"""

import asyncio
import json
import sys
import time

TARGET = json.loads(sys.argv[1])
"""`command` or `url`, and `mode`."""
READ, CALL = "resources/read", "tools/call"


async def obey(ask):
    """Measure until stdin ends; `await ask(method, params)` is the length of what came, in characters or bytes."""
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await measure(ask, **json.loads(line))), flush=True)


async def measure(ask, method, params, in_flight, seconds, most, length):
    latencies, errors = [], 0
    end = time.perf_counter() + seconds

    async def worker(number):
        nonlocal errors
        while not latencies or (time.perf_counter() < end and len(latencies) < most):
            began = time.perf_counter_ns()
            got = await ask(method, params[number % len(params)])
            latencies.append(time.perf_counter_ns() - began)
            errors += got != length
            number += in_flight

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker(number) for number in range(in_flight)))
    cpu, elapsed = time.process_time() - cpu, time.perf_counter() - began
    latencies.sort()
    return {
        "requests": len(latencies),
        "seconds": elapsed,
        "cpu": cpu,
        "errors": errors,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[len(latencies) * 99 // 100],
    }
