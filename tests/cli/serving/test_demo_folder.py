"""The demo folder: a copy with a growing log, which is deleted at the end."""

from pathlib import Path

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


def test_without_a_folder_sample_files_are_created() -> None:
    with demo_folder(None, period=60) as folder:
        assert {path.name for path in Path(folder).iterdir()} == {"README.md", "berths.csv", LOG}
