"""Runs a local S3 server with a bucket of fifty thousand objects. Prints its port."""

from __future__ import annotations

import sys

OBJECTS = 50_000


def main() -> None:
    """Serve until stdin ends."""
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    fill(f"http://{host}:{port}")
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()


def fill(endpoint: str) -> None:
    """Put the objects into the server's store directly, which is faster than a request for each."""
    import boto3
    from moto.s3.models import s3_backends

    boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="bench", aws_secret_access_key="bench"
    ).create_bucket(Bucket="charts")
    (backend,) = [
        backend for account in s3_backends.values() for backend in account.values() if "charts" in backend.buckets
    ]
    for number in range(OBJECTS):
        backend.put_object("charts", f"tiles/{number // 500:03}/{number:05}.json", b'{"depth": %d}' % (number % 90))


if __name__ == "__main__":
    main()
