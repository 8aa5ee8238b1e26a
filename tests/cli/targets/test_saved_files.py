"""Names from a server never place a file outside its folder, nor overwrite another one."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from wharfinger.cli.targets.saved_files import name_of_uri, new_file, replacement


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///charts/map.png", "map.png"),
        ("file:///charts/", "charts"),
        ("file:///a/%2e%2e%2fetc%2fpasswd", "etc-passwd"),
        ("file:///a/..", "content"),
        ("file:///.bashrc", "bashrc"),
        ("file:///\ud800.bashrc", "bashrc"),
        ("a://b/c?d=/e", "c"),
        ("a://b", "content"),
        ("a:b/c\x1b[31m\0", "c-[31m"),
        ("x:///a%C2%9B31m", "a-31m"),  # a C1 control, which a terminal may act on when the name is printed
        ("x:///a%E2%80%AEgnp.exe", "a-gnp.exe"),  # shown as `aexe.png` otherwise
        ("file:///CON.txt", "_CON.txt"),
        ("http://[", "["),
        ("x:///" + "a" * 500, "a" * 200),
        ("x:///" + "海" * 500, "海" * 66),
        ("x:///" + "a" * 199 + ". b", "a" * 199),
    ],
)
def test_a_file_is_named_after_the_last_segment_without_special_characters(uri: str, name: str) -> None:
    assert name_of_uri(uri) == name


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    written = [new_file(folder, "map", "image/png", b"1"), new_file(folder, "map", "image/png", b"2")]
    written.append(new_file(folder, "odd", "no/such-type", b"3"))
    assert [path.name for path in written] == ["map.png", "map-2.png", "odd.bin"]
    assert written[0].read_bytes() == b"1"


def test_a_name_of_many_long_characters_can_be_written(tmp_path: Path) -> None:
    name = name_of_uri("file:///" + "海" * 500)
    written = [new_file(tmp_path, name, "application/octet-stream", b"1") for _ in range(2)]
    assert [path.name for path in written] == [f"{name}.bin", f"{name}-2.bin"]


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links, and file modes")
def test_a_replaced_file_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    file, link = tmp_path / "map.png", tmp_path / "link.png"
    file.write_bytes(b"old")
    file.chmod(0o640)
    link.symlink_to(file)
    with replacement(str(link)) as out:
        out.write(b"new")
        assert file.read_bytes() == b"old"
    assert link.is_symlink() and file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link.png", "map.png"]


def test_a_file_that_cannot_be_written_is_named_in_the_error(tmp_path: Path) -> None:
    output = str(tmp_path / "missing" / "map.png")
    with pytest.raises(FileNotFoundError) as caught, replacement(output):
        pass
    assert caught.value.filename == output


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
def test_a_pipe_is_written_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with replacement(str(pipe)) as out:
        out.write(b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
