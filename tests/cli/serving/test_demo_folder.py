"""The demo folder: a copy with a growing log that leaves nothing behind."""

import threading
from pathlib import Path

from wharfinger.cli.serving.demo_folder import LOG, demo_folder


def grown(log: Path, lines: int) -> bool:
    """Wait until the log has this number of lines."""
    done = threading.Event()
    for _ in range(1000):
        if len(log.read_text().splitlines()) >= lines:
            return True
        done.wait(0.005)
    return False


def test_the_log_grows_and_the_copy_goes(tmp_path: Path) -> None:
    source = tmp_path / "examples"
    source.mkdir()
    (source / "a.md").write_text("a")
    (source / LOG).write_text("first\n")
    with demo_folder(str(source), period=0.01) as folder:
        copy = Path(folder)
        assert copy.name == "examples"
        assert (copy / "a.md").read_text() == "a"
        assert grown(copy / LOG, 4)
    assert not copy.exists()
    assert (source / LOG).read_text() == "first\n"


def test_without_a_folder_there_is_still_something_to_see() -> None:
    with demo_folder(None, period=60) as folder:
        assert {path.name for path in Path(folder).iterdir()} == {"README.md", "berths.csv", LOG}
