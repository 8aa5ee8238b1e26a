"""The driver's commands for Python clients under test: each line of stdin asks for one measurement.

A client prints `ready` when it is connected. A line of stdin holds the method, the params to send in turn, the requests
in flight, the seconds, the maximum number of requests and the expected length; the client answers with a line of
figures. The length of every answer is checked. `client.mjs` does the same for TypeScript.
"""

import asyncio
import json
import sys
import time

TARGET = json.loads(sys.argv[1])
"""`command` or `url`, and `mode`."""
READ, CALL = "resources/read", "tools/call"


async def run_commands(ask):
    """Measure until stdin ends. `await ask(method, params)` sends a request and returns the length of its answer."""
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
            received = await ask(method, params[number % len(params)])
            latencies.append(time.perf_counter_ns() - began)
            errors += received != length
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
