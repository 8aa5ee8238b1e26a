"""A faulty server of the handshake era in plain Python, which tests run as a process.

The name of the called tool selects the fault before, or instead of, its answer.
"""

import json
import os
import sys
import time

MIB = 1024 * 1024
TOOLS = [
    {
        "name": "hostile_pattern",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"word": {"type": "string", "pattern": "^(([a-z])+.)+$"}}},
    }
]


def write(data):
    data = memoryview(data)
    while data:
        data = data[os.write(1, data) :]


def answer_call(id, name):
    result = {"content": [{"type": "text", "text": "calm"}]}
    answer = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n"
    if name == "print":
        write(b"Loading charts...\n\n  50 %\r\n{'not': 'json'}\n[1, 2]\nnull\n" + answer)
    elif name == "latin":
        write("Größe: 3 m\n".encode("latin-1") + b"\xff\xfe\x00\n" + answer)
    elif name == "latin_answer":
        write(answer.replace(b"calm", "Größe".encode("latin-1")))
    elif name == "halves":
        write(answer[:20])
        time.sleep(0.2)
        write(answer[20:])
    elif name == "half":
        write(answer[:20])
        os._exit(3)
    elif name == "large":
        write(answer.replace(b"calm", b"x" * 50 * MIB))
    elif name == "rubbish":
        for _ in range(64):
            write(b"x" * MIB)
        write(b"\n" + answer)
    elif name == "rubbish_lines":
        for _ in range(64):
            write((b"x" * 1023 + b"\n") * 1024)
        write(answer)
    elif name == "endless":
        for _ in range(16):
            write(b"x" * MIB)
        write(b"\n")
    elif name == "deep":
        write(answer.replace(b'"calm"', b"[" * 100_000 + b"]" * 100_000))
    elif name == "silent":
        pass
    elif name == "slow":
        time.sleep(0.5)
        write(answer)
    elif name == "hostile_pattern":
        structured = {**result, "structuredContent": {"word": "a" * 60 + "\n"}}
        write(json.dumps({"jsonrpc": "2.0", "id": id, "result": structured}).encode() + b"\n")
    else:
        write(answer)


def main():
    for line in sys.stdin.buffer:
        message = json.loads(line)
        id, method = message.get("id"), message.get("method")
        if id is None:
            continue
        if method == "initialize":
            info = {"name": "faulty", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            result = {"tools": TOOLS}
        elif method == "tools/call":
            answer_call(id, message["params"]["name"])
            continue
        else:
            error = {"code": -32601, "message": "no such method"}
            write(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode() + b"\n")
            continue
        write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n")


main()
