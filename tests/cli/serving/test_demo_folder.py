"""The demo folder: a copy with a growing log, which is deleted at the end."""

import os
from pathlib import Path

import pytest

from tests.waiting import wait_until
from wharfinger.cli.serving.demo_folder import LOG, demo_folder


def test_the_log_in_the_copy_grows_and_the_copy_is_deleted(tmp_path: Path) -> None:
    source = tmp_path / "examples"
    source.mkdir()
    (source / "a.md").write_text("a")
    (source / LOG).write_text("first\n")
    with demo_folder(str(source), period=0.01) as folder:
        copy = Path(folder)
        assert copy.name == "examples"
        assert (copy / "a.md").read_text() == "a"
        wait_until(lambda: len((copy / LOG).read_text().splitlines()) >= 4, "the log has four lines")
    assert not copy.exists()
    assert (source / LOG).read_text() == "first\n"


@pytest.mark.skipif(os.name == "nt", reason="links, and modes of folders")
def test_a_log_that_is_read_only_or_a_link_grows_only_in_the_copy(tmp_path: Path) -> None:
    """A bug: the demonstration did not start, or wrote to the file that the link leads to."""
    source, log = tmp_path / "examples", tmp_path / "real.log"
    source.mkdir()
    log.write_text("first\n")
    (source / LOG).symlink_to(log)
    with demo_folder(str(source), period=60) as folder:
        assert len((Path(folder) / LOG).read_text().splitlines()) == 2
    assert log.read_text() == "first\n"
    log.unlink()
    with demo_folder(str(source), period=60):
        assert not log.exists()
    (source / LOG).unlink()
    (source / LOG).write_text("first\n")
    (source / LOG).chmod(0o444)
    source.chmod(0o555)
    with demo_folder(str(source), period=60) as folder:
        assert (Path(folder) / LOG).stat().st_mode & Path(folder).stat().st_mode & 0o200
        assert len((Path(folder) / LOG).read_text().splitlines()) == 2
    source.chmod(0o755)


def test_without_a_folder_sample_files_are_created() -> None:
    with demo_folder(None, period=60) as folder:
        assert {path.name for path in Path(folder).iterdir()} == {"README.md", "berths.csv", LOG}
