"""ZIP archives that try to escape the source or to exhaust the memory, and damaged archives."""

from __future__ import annotations

import bz2
import lzma
import os
import stat
import struct
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import UnusableSource
from wharfinger.sources.object_store import Objects, objects, zip_archive


def entry(name: str, mode: int = 0) -> zipfile.ZipInfo:
    """Return a member with any name: the constructor of `ZipInfo` would normalize it."""
    info = zipfile.ZipInfo("x", (2026, 7, 1, 12, 0, 0))
    info.filename = name
    info.external_attr = mode << 16
    return info


def pack(path: Path, *members: tuple[zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> Objects:
    with zipfile.ZipFile(path, "w", method) as archive:
        for info, data in members:
            info.compress_type = method
            archive.writestr(info, data)
    return objects(f"zip:{path}")


def listed_uris(source: Objects) -> list[str]:
    return [resource.uri for resource in source.page(None, 1_000)[0]]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_members_with_the_same_name_the_last_one_counts(tmp_path: Path) -> None:
    """A bug: the others were counted as withheld links, unsafe or overlapping members."""
    source = pack(tmp_path / "x.zip", (entry("a.txt"), b"one"), (entry("a.txt"), b"two"))
    assert source.read(listed_uris(source)[-1]).contents[0].text == "two"
    assert source.describe().startswith("1 member, ")


def test_names_that_leave_the_archive_are_withheld(tmp_path: Path) -> None:
    unsafe_names = [
        "../up",
        "a/../../up",
        "/etc/passwd",
        "C:/x",
        "C:x",
        "..\\up",
        "\\\\host\\x",
        "./x",
        "a//b",
        "..",
        "a/./b",
    ]
    source = pack(tmp_path / "a.zip", (entry("in.txt"), b"in"), *((entry(name), b"out") for name in unsafe_names))
    assert listed_uris(source) == ["zip://a.zip/", "zip://a.zip/in.txt"]
    assert source.describe() == "1 member (11 withheld: links, unsafe or overlapping), watched by polling every 1 s"
    for path in (
        "../up",
        "%2e%2e/up",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "C:/x",
        "C%3A/x",
        "..%5Cup",
        "a/%2e%2e/in.txt",
    ):
        with pytest.raises(ResourceNotFound):
            source.read(source.uri + path)


def test_links_and_devices_are_withheld(tmp_path: Path) -> None:
    kinds = [stat.S_IFLNK | 0o777, stat.S_IFCHR | 0o666, stat.S_IFIFO | 0o666]
    members = [(entry(f"odd{number}", mode), b"/etc/passwd") for number, mode in enumerate(kinds)]
    source = pack(tmp_path / "a.zip", *members, (entry("file", stat.S_IFREG | 0o644), b"in"))
    assert listed_uris(source) == ["zip://a.zip/", "zip://a.zip/file"]
    with pytest.raises(ResourceNotFound):
        source.read("zip://a.zip/odd0")


def test_a_zip_bomb_is_reported_and_not_inflated(tmp_path: Path) -> None:
    source = pack(tmp_path / "a.zip", (entry("bomb.txt"), b"\0" * (64 << 20)), (entry("ok.txt"), b"ok"))
    with pytest.raises(InvalidArgument, match=r"bomb.txt declares 67,108,864 bytes from 65,\d+ compressed ones"):
        source.read("zip://a.zip/bomb.txt")
    assert list(source.text("zip://a.zip/bomb.txt")) == []
    assert source.read("zip://a.zip/ok.txt").contents[0].text == "ok"


def forge_size(path: Path, name: bytes, size: int) -> None:
    """Declare another size of the only member, in its header and in the directory."""
    data = bytearray(path.read_bytes())
    local, central = data.index(b"PK\x03\x04"), data.rindex(b"PK\x01\x02")
    assert data[local + 30 : local + 30 + len(name)] == name
    struct.pack_into("<I", data, local + 22, size)
    struct.pack_into("<I", data, central + 24, size)
    path.write_bytes(data)


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_member_with_a_false_size_is_reported(tmp_path: Path, size: int) -> None:
    pack(tmp_path / "a.zip", (entry("liar"), os.urandom(500) * 40)).store.close()
    forge_size(tmp_path / "a.zip", b"liar", size)
    with pytest.raises(InvalidArgument, match="liar is damaged"):
        objects(f"zip:{tmp_path}/a.zip").read("zip://a.zip/liar")


@cache
def zeros(method: int, size: int) -> bytes:
    """Return `size` zero bytes, compressed by `method` without a container."""
    compressor: Any = {
        zipfile.ZIP_STORED: lambda: None,
        zipfile.ZIP_DEFLATED: lambda: zlib.compressobj(9, zlib.DEFLATED, -15),
        zipfile.ZIP_BZIP2: lambda: bz2.BZ2Compressor(9),
        zipfile.ZIP_LZMA: lambda: lzma.LZMACompressor(
            lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA1, "preset": 0, "dict_size": 1 << 16}]
        ),
    }[method]()
    if compressor is None:
        return bytes(size)
    packed = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(size >> 20)) + compressor.flush()
    header = b"\x09\x04\x05\x00\x5d" + (1 << 16).to_bytes(4, "little") if method == zipfile.ZIP_LZMA else b""
    return header + packed


def write_raw(
    path: Path, members: list[tuple[bytes, int, bytes, int]], overlap: bool = False, extra: bytes = b""
) -> None:
    """Write an archive of members, each of them a name, a method, the packed data and the declared size.

    With `overlap`, all entries of the directory refer to the first member.
    """
    body, directory = bytearray(), bytearray()
    offset = 0
    for name, method, data, size in members:
        if not overlap or not body:
            offset = len(body)
            body += (
                struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, method, 0, 33, 0, len(data), size, len(name), 0)
                + name
                + data
            )
        fields = (20, 20, 0, method, 0, 33, 0, len(data), size, len(name), len(extra), 0, 0, 0, 0, offset)
        directory += struct.pack("<4s6H3I5H2I", b"PK\x01\x02", *fields) + name + extra
    end = (0, 0, len(members) & 0xFFFF, len(members) & 0xFFFF, len(directory), len(body), 0)
    path.write_bytes(bytes(body + directory) + struct.pack("<4s4H2IH", b"PK\x05\x06", *end))


def memory_mib_of(code: str, *arguments: str) -> int:
    """Run code in a new process, for at most 60 s, and return by how many MiB its peak memory grew."""
    program = f"""
import sys
from wharfinger.sources.object_store import objects
from wharfinger.errors import WharfingerError
def peak():  # ru_maxrss would include the process that started this one
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
begin = peak()
try:
    {code}
except WharfingerError as error:
    print(error, file=sys.stderr)
print((peak() - begin) >> 10)
"""
    process = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    return int(process.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_measured_even_if_the_tests_use_more() -> None:
    """Regression: growth up to the size of the tests' own process was not seen."""
    tests_memory = b"x" * (500 << 20)
    assert memory_mib_of("b'x' * (200 << 20)") > 190
    assert tests_memory


READ_CODE = (
    "source = objects('zip:' + sys.argv[1]); source.read('zip://a.zip/bomb'); list(source.text('zip://a.zip/bomb'))"
)
OPEN_CODE = "source = objects('zip:' + sys.argv[1]); source.page(None, 500); source.children('zip://a.zip/')"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("size", [1_000, 1 << 20, 0xFFFFFFF])
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_bomb_with_a_false_size_is_never_inflated_in_memory(tmp_path: Path, method: int, size: int) -> None:
    """Regression: a bzip2 member of 861 bytes inflated to 2,032 MiB. This test uses 256 MiB."""
    write_raw(tmp_path / "a.zip", [(b"bomb", method, zeros(method, 256 << 20), size)])
    assert memory_mib_of(READ_CODE, str(tmp_path / "a.zip")) < 64


@pytest.mark.parametrize(
    ("method", "method_name"), [(zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "LZMA"), (98, "method 98")]
)
def test_a_compression_method_other_than_deflate_is_reported(tmp_path: Path, method: int, method_name: str) -> None:
    write_raw(tmp_path / "a.zip", [(b"bomb", method, b"x", 1)])
    with pytest.raises(InvalidArgument, match=f"bomb is compressed by {method_name}, but only deflate is supported"):
        objects(f"zip:{tmp_path}/a.zip").read("zip://a.zip/bomb")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_directory_of_500_000_entries_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    write_raw(tmp_path / "a.zip", [(b"%x" % n, 0, b"", 0) for n in range(500_000)])
    assert memory_mib_of(OPEN_CODE, str(tmp_path / "a.zip")) < 128
    with pytest.raises(UnusableSource, match="it has more than 300,000 members"):
        objects(f"zip:{tmp_path}/a.zip")


def test_extra_data_that_would_take_quadratic_time_is_refused(tmp_path: Path) -> None:
    began = time.process_time()
    write_raw(tmp_path / "a.zip", [(b"%x" % n, 0, b"", 0) for n in range(400)], extra=b"\xff\xff\0\0" * 16_000)
    with pytest.raises(UnusableSource, match="more than 4,096 bytes of extra data"):
        objects(f"zip:{tmp_path}/a.zip")
    assert time.process_time() - began < 5


def test_overlapping_members_are_withheld(tmp_path: Path) -> None:
    """If one bomb is listed as 1,000 members, the search index would inflate it 1,000 times."""
    shared = [(b"%d" % n, zipfile.ZIP_DEFLATED, zeros(zipfile.ZIP_DEFLATED, 1 << 20), 1 << 20) for n in range(1_000)]
    write_raw(tmp_path / "a.zip", shared, overlap=True)
    source = objects(f"zip:{tmp_path}/a.zip")
    assert listed_uris(source) == ["zip://a.zip/"]
    assert source.describe().startswith("0 members (1,000 withheld")
    write_raw(tmp_path / "a.zip", [*shared[:1], (b"x", 0, b"plain", 5), *shared[1:3]])
    assert len(listed_uris(source)) == 5


@pytest.mark.parametrize(("length", "count"), [(1_024, 2), (1_025, 1)])
def test_a_huge_name_is_withheld(tmp_path: Path, length: int, count: int) -> None:
    write_raw(tmp_path / "a.zip", [(b"x" * length, 0, b"", 0)])
    assert len(listed_uris(objects(f"zip:{tmp_path}/a.zip"))) == count


def test_deeply_nested_names_are_listed_in_pages(tmp_path: Path) -> None:
    write_raw(tmp_path / "a.zip", [(b"%d/" % n + b"d/" * 500 + b"x", 0, b"", 0) for n in range(1_000)])
    source = objects(f"zip:{tmp_path}/a.zip")
    began = time.process_time()
    page, after = source.page(None, 100)
    assert len(page) == 100
    assert len(source.page(after, 100)[0]) == 100
    assert time.process_time() - began < 5


@pytest.mark.parametrize("size", [1 << 40, (1 << 64) - 1])
def test_false_zip64_sizes_are_reported(tmp_path: Path, size: int) -> None:
    extra = struct.pack("<2H2Q", 1, 16, size, 10)
    write_raw(
        tmp_path / "a.zip",
        [(b"bomb", zipfile.ZIP_DEFLATED, zeros(zipfile.ZIP_DEFLATED, 1 << 20), 0xFFFFFFFF)],
        extra=extra,
    )
    source = objects(f"zip:{tmp_path}/a.zip")
    with pytest.raises(InvalidArgument):
        source.read("zip://a.zip/bomb")


def test_a_window_beyond_the_inflation_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archive, "MAX_INFLATED_BYTES", 1 << 20)
    source = pack(tmp_path / "a.zip", (entry("long.txt"), os.urandom(1 << 20).hex().encode()))
    assert source.read("zip://a.zip/long.txt?bytes=0-9").contents[0].text
    with pytest.raises(InvalidArgument, match="at most its first 1 MiB are inflated"):
        source.read("zip://a.zip/long.txt?bytes=2000000-2000009")


def test_an_encrypted_member_is_reported(tmp_path: Path) -> None:
    pack(tmp_path / "a.zip", (entry("secret"), b"x")).store.close()
    data = bytearray((tmp_path / "a.zip").read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    source = objects(f"zip:{tmp_path}/a.zip")
    assert listed_uris(source) == ["zip://a.zip/", "zip://a.zip/secret"]
    with pytest.raises(InvalidArgument, match="secret is encrypted"):
        source.read("zip://a.zip/secret")


def test_a_damaged_member_is_reported(tmp_path: Path) -> None:
    pack(tmp_path / "a.zip", (entry("a"), os.urandom(5000).hex().encode())).store.close()
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[40:44] = b"\xff\xff\xff\xff"
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(InvalidArgument, match="a is damaged"):
        objects(f"zip:{tmp_path}/a.zip").read("zip://a.zip/a")


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive at all" * 99, b"PK\x05\x06" + b"\xff" * 18])
def test_an_invalid_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(UnusableSource, match="cannot be read as a ZIP archive"):
        objects(f"zip:{tmp_path}/a.zip")


def test_a_directory_with_a_huge_declared_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with path.open("wb") as file:
        file.truncate(200 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, 100 << 20, 100 << 20, 0))
    with pytest.raises(UnusableSource, match="its directory has more than 32 MiB"):
        objects(f"zip:{path}")


@pytest.mark.parametrize("path", ["none.zip", ".", "fifo"])
def test_a_path_that_is_not_a_file_is_refused(tmp_path: Path, path: str) -> None:
    if path == "fifo":
        os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UnusableSource, match="There is no file"):
        objects(f"zip:{tmp_path / path}")


def test_a_replaced_archive_is_read_again_and_a_missing_one_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    source = pack(path, (entry("a"), b"old"))
    assert source.read("zip://a.zip/a").contents[0].text == "old"
    pack(path, (entry("a"), b"newer"), (entry("b"), b"b")).store.close()
    assert source.read("zip://a.zip/a").contents[0].text == "newer"
    assert len(listed_uris(source)) == 3
    path.unlink()
    with pytest.raises(Exception, match=r"a\.zip cannot be read: No such file"):
        source.read("zip://a.zip/a")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_all_windows_of_a_large_member_are_read_quickly(tmp_path: Path, method: int) -> None:
    lines = b"".join(b"%07d fathoms\n" % number for number in range(400_000))
    source = pack(tmp_path / "a.zip", (entry("long.txt"), lines), method=method)
    began = time.monotonic()
    uri, pieces = "zip://a.zip/long.txt?bytes=0-", []
    while uri:
        content = source.read(uri).contents[0]
        pieces.append(str(content.text))
        uri = str(content.meta.get("wharfinger/next", "")) if isinstance(content.meta, dict) else ""
    assert "".join(pieces).encode() == lines
    assert time.monotonic() - began < 10


def test_several_threads_read_one_archive(tmp_path: Path) -> None:
    members = [(entry(f"{number}.txt"), f"{number} ".encode() * 50_000) for number in range(8)]
    source = pack(tmp_path / "a.zip", *members)
    mismatches: list[int] = []

    def read(number: int) -> None:
        for _ in range(20):
            (content,) = source.read(f"zip://a.zip/{number}.txt").contents
            if content.text != f"{number} " * 50_000:
                mismatches.append(number)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mismatches == []


def test_fifty_thousand_members_are_listed_quickly(tmp_path: Path) -> None:
    source = pack(tmp_path / "a.zip", *((entry(f"d{n % 50}/{n}.txt"), b"") for n in range(50_000)))
    source.page(None, 100)
    durations = []
    for _ in range(5):
        began = time.perf_counter()
        source.page(None, 100)
        durations.append(time.perf_counter() - began)
    assert min(durations) < 0.1
    assert len(source.children("zip://a.zip/")[0]) == 50
