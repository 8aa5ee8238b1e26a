"""tar archives: each member has the bytes that `tar -xO` writes, and hostile or damaged archives are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sources.object_store.test_zip_archive import memory_mib_of
from wharfinger.errors import InvalidArgument, ResourceNotFound, WharfingerError
from wharfinger.source import UnusableSource
from wharfinger.sources.object_store import Objects, archive_store, objects, tar_archive, unpacked_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compares with GNU tar")

LONG = "a-very-long-name-of-a-harbour/" * 8 + "depths.txt"


def tar(*arguments: str | os.PathLike[str], cwd: Path | None = None) -> bytes:
    return subprocess.run(["tar", *arguments], cwd=cwd, check=True, capture_output=True).stdout


def keys(source: Objects) -> list[str]:
    return [info.key for info in source.store.page("", 1_000)[0]]


def bytes_of(source: Objects, key: str) -> bytes:
    info = source.store.info(key)
    assert info is not None and info.size is not None
    return source.store.content(info).read(0, info.size)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a folder with empty, small and large files, and with long and unusual names."""
    root = tmp_path / "tree"
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "README.md").write_text("# Notices\n")
    (root / "empty").touch()
    for size in (1, 511, 512, 513, 70_000):
        (root / "docs" / f"{size}.bin").write_bytes(os.urandom(size))
    (root / "docs" / "deep" / "Köpenhamn ✓ %41.txt").write_text("fathoms\n" * 1_000)
    (root / LONG).parent.mkdir(parents=True)
    (root / LONG).write_text("deep")
    return root


@pytest.mark.parametrize("tar_format", ["gnu", "pax", "posix", "oldgnu"])
@pytest.mark.parametrize("compress", ["", "--gzip", "--bzip2", "--xz"])
@pytest.mark.parametrize("paths", [".", "docs README.md empty a-very-long-name-of-a-harbour"])
def test_each_member_has_the_bytes_that_tar_extracts(
    tmp_path: Path, tree: Path, tar_format: str, compress: str, paths: str
) -> None:
    path = tmp_path / "a.tar.any"
    tar("-cf", path, f"--format={tar_format}", *([compress] if compress else []), *paths.split(), cwd=tree)
    source = objects(f"tar:{path}")
    names = [line for line in tar("-tf", path, "--quoting-style=literal").decode().splitlines() if line[-1:] != "/"]
    assert sorted(name.removeprefix("./") for name in names) == keys(source)
    for name in names:
        key = name.removeprefix("./")
        whole = tar("-xOf", path, "--no-wildcards", "--", name)
        assert bytes_of(source, key) == whole == (tree / key).read_bytes()
    assert source.read(source.uri + "README.md").contents[0].text == "# Notices\n"
    assert (
        source.read(source.uri_of("docs/deep/Köpenhamn ✓ %41.txt") + "?lines=1000-1000").contents[0].text == "fathoms\n"
    )


@pytest.mark.parametrize("tar_format", ["v7", "ustar"])
def test_old_formats_are_read(tmp_path: Path, tar_format: str) -> None:
    (tmp_path / "a.txt").write_text("one")
    tar("-cf", "a.tar", f"--format={tar_format}", "a.txt", cwd=tmp_path)
    assert bytes_of(objects(f"tar:{tmp_path}/a.tar"), "a.txt") == b"one"


@pytest.mark.parametrize(
    "tar_format", ["gnu", "posix --sparse-version=0.0", "posix --sparse-version=0.1", "posix --sparse-version=1.0"]
)
@pytest.mark.parametrize("compress", [[], ["--gzip"]])
def test_sparse_files_are_read_with_their_holes(tmp_path: Path, tar_format: str, compress: list[str]) -> None:
    with (tmp_path / "disk").open("wb") as file:
        for offset in range(0, 3 << 20, 128 << 10):
            file.seek(offset)
            file.write(os.urandom(4096))
        file.truncate((3 << 20) + 77)
    (tmp_path / "after.txt").write_text("after")
    tar("-cSf", "a.tar", *f"--format={tar_format}".split(), *compress, "disk", "after.txt", cwd=tmp_path)
    assert (tmp_path / "a.tar").stat().st_size < 1 << 20
    source = objects(f"tar:{tmp_path}/a.tar")
    whole = (tmp_path / "disk").read_bytes()
    assert bytes_of(source, "disk") == whole == tar("-xOf", tmp_path / "a.tar", "disk")
    info = source.store.info("disk")
    assert info is not None
    for offset in (0, 4095, 4096, 130_000, len(whole) - 80):
        assert source.store.content(info).read(offset, 5_000) == whole[offset : offset + 5_000]
    assert bytes_of(source, "after.txt") == b"after"


@pytest.mark.parametrize("tar_format", ["gnu", "posix"])
@pytest.mark.parametrize("compress", [[], ["--gzip"]])
def test_a_sparse_file_without_data_is_read(tmp_path: Path, tar_format: str, compress: list[str]) -> None:
    """A bug: the archive was refused as truncated."""
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(1 << 20)
    (tmp_path / "after.txt").write_text("after")
    tar("-cSf", "a.tar", f"--format={tar_format}", *compress, "disk", "after.txt", cwd=tmp_path)
    source = objects(f"tar:{tmp_path}/a.tar")
    assert bytes_of(source, "disk") == bytes(1 << 20)
    assert bytes_of(source, "after.txt") == b"after"


def entry(name: str, data: bytes = b"x", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def pack(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: Any = "w", **options: Any) -> Path:
    with tarfile.open(path, mode, **options) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return path


def test_names_that_leave_the_archive_are_withheld(tmp_path: Path) -> None:
    unsafe_names = [
        "../up",
        "a/../../up",
        "/etc/passwd",
        "C:/x",
        "C:x",
        "..\\up",
        "\\\\host\\x",
        "a//b",
        "..",
        "a/./b",
        "./../x",
    ]
    path = pack(tmp_path / "a.tar", entry("in.txt"), entry("./also.txt"), *(entry(name) for name in unsafe_names))
    source = objects(f"tar:{path}")
    assert keys(source) == ["also.txt", "in.txt"]
    assert source.describe().startswith("2 members (11 withheld: links, devices or unsafe)")
    for uri in ("../up", "%2e%2e/up", "/etc/passwd", "%2Fetc%2Fpasswd", "C%3A/x", "..%5Cup"):
        with pytest.raises(ResourceNotFound):
            source.read(source.uri + uri)


def test_links_devices_and_pipes_are_withheld(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    special_members = [
        entry(f"odd{n}", b"", type=kind, linkname=str(tmp_path / "secret")) for n, kind in enumerate(kinds)
    ]
    source = objects(f"tar:{pack(tmp_path / 'a.tar', *special_members, entry('file'))}")
    assert keys(source) == ["file"]
    with pytest.raises(ResourceNotFound):
        source.read("tar://a.tar/odd0")


def test_the_last_of_several_members_with_one_name_is_served(tmp_path: Path) -> None:
    link = entry("gone", b"", type=tarfile.SYMTYPE, linkname="x")
    path = pack(tmp_path / "a.tar", entry("a", b"old"), entry("gone"), link, entry("./a", b"newest"))
    source = objects(f"tar:{path}")
    assert keys(source) == ["a"]
    tar("-xf", path, cwd=tmp_path)
    assert bytes_of(source, "a") == b"newest" == (tmp_path / "a").read_bytes()
    assert (tmp_path / "gone").is_symlink()


def test_a_name_that_is_not_utf8_is_read_as_latin_1(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / name).write_text("x")
    for tar_format in ("gnu", "pax"):
        tar("-cf", "a.tar", f"--format={tar_format}", name, cwd=tmp_path)
        source = objects(f"tar:{tmp_path}/a.tar")
        assert keys(source) == ["café.txt"]
        assert source.read("tar://a.tar/caf%C3%A9.txt").contents[0].text == "x"


@pytest.mark.parametrize(("length", "count"), [(1_024, 1), (1_025, 0)])
def test_a_huge_name_is_withheld(tmp_path: Path, length: int, count: int) -> None:
    path = pack(tmp_path / "a.tar", entry("x" * length), format=tarfile.GNU_FORMAT)
    assert len(keys(objects(f"tar:{path}"))) == count


# Limits


def test_an_archive_with_too_many_members_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_archive, "MAX_MEMBERS", 5)
    path = pack(tmp_path / "a.tar", *(entry(str(n)) for n in range(5)))
    assert len(keys(objects(f"tar:{path}"))) == 5
    pack(path, *(entry(str(n)) for n in range(6)))
    with pytest.raises(UnusableSource, match="more than 5 members"):
        objects(f"tar:{path}")


def test_an_archive_with_too_large_headers_is_refused(tmp_path: Path) -> None:
    def with_comment(length: int) -> Path:
        return pack(tmp_path / "a.tar", entry("a", pax_headers={"comment": "x" * length}), format=tarfile.PAX_FORMAT)

    max_length = tar_archive.MAX_HEADER_BYTES - 1024
    assert keys(objects(f"tar:{with_comment(max_length - 100)}")) == ["a"]
    with pytest.raises(UnusableSource, match="have more than 1,048,576 bytes"):
        objects(f"tar:{with_comment(max_length + 512)}")


@pytest.mark.parametrize(("number", "refused"), [(100, False), (101, True)])
def test_an_archive_with_too_many_global_headers_is_refused(tmp_path: Path, number: int, refused: bool) -> None:
    records = {f"COMMENT.{n}": "x" for n in range(number)}
    path = pack(tmp_path / "a.tar", entry("a"), format=tarfile.PAX_FORMAT, pax_headers=records)
    if refused:
        with pytest.raises(UnusableSource, match="more than 100 global headers"):
            objects(f"tar:{path}")
    else:
        assert keys(objects(f"tar:{path}")) == ["a"]


@pytest.mark.parametrize(("digits", "refused"), [(100, False), (101, True), (500_000, True)])
def test_a_header_that_would_take_quadratic_time_is_refused(tmp_path: Path, digits: int, refused: bool) -> None:
    records = {"comment": "1" * digits + "x" * 600}
    path = pack(tmp_path / "a.tar", entry("a", pax_headers=records), format=tarfile.PAX_FORMAT)
    if refused:
        with pytest.raises(UnusableSource, match="more than 100 digits"):
            objects(f"tar:{path}")
    else:
        assert keys(objects(f"tar:{path}")) == ["a"]


@pytest.mark.parametrize("size", [-1, -512, -(1 << 40)])
def test_a_negative_size_is_refused(tmp_path: Path, size: int) -> None:
    """`tarfile` would read such an archive in an endless loop (CVE-2025-8194)."""
    header = bytearray(entry("a")[0].tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" + size.to_bytes(11, "big", signed=True)
    header[148:156] = b"%06o\0 " % (256 + sum(header[:148]) + sum(header[156:512]))
    (tmp_path / "a.tar").write_bytes(bytes(header) + bytes(10_240))
    with pytest.raises(UnusableSource, match="impossible size"):
        objects(f"tar:{tmp_path}/a.tar")


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_a_decompression_bomb_is_refused(tmp_path: Path, ending: str) -> None:
    path = pack(tmp_path / f"a.tar.{ending}", entry("bomb", bytes(40 << 20)), mode=f"w:{ending}")
    with pytest.raises(UnusableSource, match=r"compressed bytes grow to more than [\d,]+, as archives do"):
        objects(f"tar:{path}")


@pytest.mark.parametrize(
    ("ending", "limit"), [("gz", "MAX_UNPACKED_BYTES"), ("bz2", "MAX_SPOOLED_BYTES"), ("xz", "MAX_SPOOLED_BYTES")]
)
def test_an_archive_is_refused_only_above_the_largest_decompressed_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, limit: str
) -> None:
    path = pack(tmp_path / f"a.tar.{ending}", entry("a", os.urandom(1 << 20)), mode=f"w:{ending}")
    program = {"gz": "gunzip", "bz2": "bunzip2", "xz": "unxz"}[ending]
    size = len(subprocess.run([program, "-c", path], capture_output=True, check=True).stdout)
    monkeypatch.setattr(unpacked_bytes, limit, size)
    assert len(bytes_of(objects(f"tar:{path}"), "a")) == 1 << 20
    monkeypatch.setattr(unpacked_bytes, limit, size - 1)
    with pytest.raises(UnusableSource, match="MiB decompressed: unpack it"):
        objects(f"tar:{path}")


@pytest.mark.parametrize(("ending", "pack_stream"), [("bz2", bz2.compress), ("xz", lzma.compress)])
def test_many_empty_streams_before_an_archive_take_linear_time(
    tmp_path: Path, ending: str, pack_stream: Callable[[bytes], bytes]
) -> None:
    plain = pack(tmp_path / "plain.tar", entry("a", b"content")).read_bytes()
    padding = bytes(40_000)
    path = tmp_path / f"a.tar.{ending}"
    path.write_bytes(pack_stream(b"") * 400_000 + padding + pack_stream(plain) + padding)
    began = time.process_time()
    assert bytes_of(objects(f"tar:{path}"), "a") == b"content"
    assert time.process_time() - began < 8


def test_the_parts_of_all_sparse_files_together_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"x")
            file.seek(1 << 20)
            file.write(b"x")
    tar("-cSf", "a.tar", "one", "two", cwd=tmp_path)
    monkeypatch.setattr(tar_archive, "MAX_EXTENTS", 2)
    with pytest.raises(UnusableSource, match="sparse files have more than 2 parts"):
        objects(f"tar:{tmp_path}/a.tar")
    monkeypatch.setattr(tar_archive, "MAX_EXTENTS", 10)
    assert keys(objects(f"tar:{tmp_path}/a.tar")) == ["one", "two"]


def test_withheld_long_names_are_not_kept_in_memory(tmp_path: Path) -> None:
    long = [entry(f"{number}" + "n" * 200_000, b"") for number in range(3)]
    path = pack(tmp_path / "a.tar", entry("a", b"1"), *long, long[0], format=tarfile.GNU_FORMAT)
    tracemalloc.start()
    try:
        source = objects(f"tar:{path}")
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "(3 withheld" in source.store.describe() and memory < 500_000


@pytest.mark.parametrize(("size", "refused"), [(16 << 20, False), ((16 << 20) + 1, True)])
def test_a_large_sparse_file_with_little_data_cannot_be_read(tmp_path: Path, size: int, refused: bool) -> None:
    with (tmp_path / "disk").open("wb") as file:
        file.write(b"x")
        file.truncate(size)
    tar("-cSf", "a.tar", "disk", cwd=tmp_path)
    source = objects(f"tar:{tmp_path}/a.tar")
    if refused:
        with pytest.raises(InvalidArgument, match="disk is a sparse file of 16,777,217 bytes"):
            source.read("tar://a.tar/disk?bytes=0-9")
    else:
        assert source.read("tar://a.tar/disk?bytes=0-0").contents[0]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_member_of_a_compressed_archive_is_not_held_in_memory(tmp_path: Path) -> None:
    line = b"%015d\n"
    with (tmp_path / "large.txt").open("wb") as file:
        for begin in range(0, 16 << 20, 1 << 16):
            file.write(b"".join(line % number for number in range(begin, begin + (1 << 16))))
    tar("-czf", "a.tar", "large.txt", cwd=tmp_path)
    code = (
        "source = objects('tar:' + sys.argv[1]); uri = 'tar://a.tar/large.txt'; "
        "assert source.read(uri + '?bytes=160000000-160000015').contents[0].text == '%015d\\n' % 10000000; "
        "assert source.read(uri + '?bytes=1600-1615').contents[0].text == '%015d\\n' % 100; "
        "assert len(source.store._archive.file._points) > 100"
    )
    assert memory_mib_of(code, str(tmp_path / "a.tar")) < 48


# Damage


@pytest.mark.parametrize("ending", ["", "gz", "bz2", "xz"])
def test_a_truncated_archive_is_refused(tmp_path: Path, ending: str) -> None:
    path = pack(tmp_path / "a.tar", entry("a", os.urandom(30_000)), entry("b", os.urandom(9_000)), mode=f"w:{ending}")
    data = path.read_bytes()
    for length in (1, 100, 513, 5_000, 30_000, 31_000, 35_000, 39_000):
        path.write_bytes(data[:length])
        with pytest.raises(UnusableSource, match="cannot be read as a tar archive: "):
            objects(f"tar:{path}")


def test_a_damaged_header_is_refused_and_does_not_end_the_archive(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar", entry("a"), entry("b"))
    data = bytearray(path.read_bytes())
    data[1024 + 3] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(UnusableSource, match=r"the header at byte 1,024 is damaged or truncated"):
        objects(f"tar:{path}")


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_damaged_compressed_data_is_refused_with_a_reason(tmp_path: Path, ending: str) -> None:
    """A bug: for bzip2, the reason was `None`."""
    path = pack(tmp_path / "a.tar", entry("a", os.urandom(30_000)), mode=f"w:{ending}")
    intact = path.read_bytes()
    path.write_bytes(intact[:15_000] + bytes(1_000) + intact[16_000:])
    with pytest.raises(UnusableSource, match=r"cannot be read as a tar archive: \w"):
        objects(f"tar:{path}")


def test_a_wrong_gzip_checksum_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar.gz", entry("a", os.urandom(3_000)), mode="w:gz")
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(UnusableSource, match="incorrect data check"):
        objects(f"tar:{path}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file"),
        (b"no archive" * 200, "cannot be read as a tar archive"),
        (
            b"\x28\xb5\x2f\xfd" + bytes(600),
            "compressed by Zstandard, which is not supported: repack it with gzip or xz",
        ),
        (b"\x1f\x8b\x08" + b"junk" * 200, "cannot be read as a tar archive"),
        (b"PK\x03\x04" + bytes(600), "cannot be read as a tar archive"),
    ],
)
def test_a_file_that_is_not_a_tar_archive_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(UnusableSource, match=message):
        objects(f"tar:{tmp_path}/a.tar")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_archives_raise_only_errors_with_a_message(tmp_path: Path, data: st.DataObject) -> None:
    members = [entry("a", b"one" * 300), entry("b" * 150, b"two"), entry("ü", pax_headers={"mtime": "1.5"})]
    tar_format = data.draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
    mode = data.draw(st.sampled_from(["w", "w:gz", "w:bz2"]))
    content = bytearray(pack(tmp_path / "a.tar", *members, mode=mode, format=tar_format).read_bytes())
    for offset, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=8)
    ):
        content[offset] = value
    (tmp_path / "a.tar").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        source = objects(f"tar:{tmp_path}/a.tar")
        for key in keys(source):
            source.read(source.uri_of(key))
    except WharfingerError as error:
        assert str(error)


def sparse_archive(change: Callable[[bytearray], None]) -> bytes:
    """Return an archive of one sparse file with a header that `change` edits, and with a correct checksum."""
    info, _ = entry("a", bytes(512), type=tarfile.GNUTYPE_SPARSE)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    change(header)
    header[148:156] = b"%06o\0 " % (256 + sum(header[:148]) + sum(header[156:512]))
    return bytes(header) + bytes(10_240)


@pytest.mark.parametrize("extents", [[(1, 1 << 30)], [(500, 12), (1, 12)], [(1, 100), (50, 100)]])
def test_an_invalid_map_of_a_sparse_file_is_refused(tmp_path: Path, extents: list[tuple[int, int]]) -> None:
    def change(header: bytearray) -> None:
        for number, (begin, length) in enumerate(extents):
            header[386 + 24 * number : 410 + 24 * number] = b"%011o\0%011o\0" % (begin, length)
        header[483:495] = b"%011o\0" % 512

    (tmp_path / "a.tar").write_bytes(sparse_archive(change))
    with pytest.raises(UnusableSource, match="the map of a sparse file is damaged"):
        objects(f"tar:{tmp_path}/a.tar")


# Changes, gzip members, threads


def test_a_changed_archive_is_read_again_and_a_damaged_or_missing_one_is_reported(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar", entry("a", b"old"))
    source = objects(f"tar:{path}")
    before = source.stat("tar://a.tar/a")
    pack(tmp_path / "new.tar", entry("a", b"new"), entry("b")).replace(path)  # with the same size, and with mtime 0
    assert source.read("tar://a.tar/a").contents[0].text == "new"
    assert source.stat("tar://a.tar/a") != before
    assert keys(source) == ["a", "b"]
    path.write_bytes(b"x" * 1_000)
    for _ in range(2):
        with pytest.raises(WharfingerError, match="cannot be read as a tar archive"):
            source.read("tar://a.tar/a")
    path.unlink()
    with pytest.raises(WharfingerError, match=r"a\.tar cannot be read: No such file"):
        source.read("tar://a.tar/a")


def test_an_archive_of_several_gzip_members_is_read_as_one(tmp_path: Path) -> None:
    data = pack(tmp_path / "a.tar", entry("a", os.urandom(50_000)), entry("b", b"bb")).read_bytes()
    parts = [gzip.compress(data[begin : begin + 7_000]) for begin in range(0, len(data), 7_000)]
    (tmp_path / "a.tar.gz").write_bytes(b"".join(parts) + bytes(512))
    source = objects(f"tar:{tmp_path}/a.tar.gz")
    assert bytes_of(source, "a") == data[512:50_512]
    assert bytes_of(source, "b") == b"bb"


def test_the_number_of_seek_points_in_a_gzip_file_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacked_bytes, "PIECE_BYTES", 4_096)
    monkeypatch.setattr(unpacked_bytes, "MAX_POINTS", 8)
    whole = os.urandom(400_000)
    source = objects(f"tar:{pack(tmp_path / 'a.tar.gz', entry('a', whole), mode='w:gz')}")
    archive: Any = source.store.current()  # type: ignore[attr-defined]
    assert 4 <= len(archive.file._points) <= 8
    info = source.store.info("a")
    assert info is not None
    for offset in range(390_000, 0, -33_333):
        assert source.store.content(info).read(offset, 5_000) == whole[offset : offset + 5_000]


def test_a_member_beyond_the_checksum_limit_has_the_version_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def versions() -> list[str]:
        pack(tmp_path / "a.tar", entry("a", b"a" * 512, mtime=next(times)), entry("b", b"b"))
        store = objects(f"tar:{tmp_path}/a.tar").store
        return [info.version for info in store.page("", 9)[0]]

    times = iter(range(9))
    first = versions()
    assert versions() == first
    monkeypatch.setattr(tar_archive, "MAX_CHECKED_BYTES", 1024)  # the end of the content of the first member
    second = versions()
    assert second[0] == first[0] and second[1] != first[1] and versions()[1] != second[1]
    monkeypatch.setattr(tar_archive, "MAX_CHECKED_BYTES", 1023)
    assert versions()[0] != first[0]


@pytest.mark.parametrize("ending", ["", "gz", "xz"])
def test_several_threads_read_one_archive(tmp_path: Path, ending: str) -> None:
    members = [entry(f"{number}.txt", f"{number} ".encode() * 50_000) for number in range(8)]
    source = objects(f"tar:{pack(tmp_path / 'a.tar', *members, mode=f'w:{ending}')}")
    mismatches: list[int] = []

    def read(number: int) -> None:
        for _ in range(20):
            if source.read(f"tar://a.tar/{number}.txt").contents[0].text != f"{number} " * 50_000:
                mismatches.append(number)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mismatches == []


def test_a_small_archive_may_have_any_compression_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(tmp_path / "a.tar.gz", entry("a", bytes(1 << 20)), mode="w:gz")
    assert len(bytes_of(objects(f"tar:{path}"), "a")) == 1 << 20
    monkeypatch.setattr(unpacked_bytes, "RATIO_MIN_BYTES", 1)
    with pytest.raises(UnusableSource, match="as archives do that are made to fill a disk"):
        objects(f"tar:{path}")
    assert archive_store.MAX_RATIO == unpacked_bytes.MAX_RATIO
