"""`tools/install.sh` shows pip's progress by package, and keeps its errors and exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PIP = """#!/bin/sh
echo 'Obtaining file:///clone'
echo '  Installing build dependencies: started'
echo "Collecting click<9,>=8.1 (from wharfinger==0.1)"
echo 'Collecting fsspec[http]>=2024'
echo 'Downloading click-8.1-py3-none-any.whl (97 kB)'
echo 'Installing collected packages: click, fsspec'
echo "got $*" >&2
exit CODE
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell script")


@pytest.mark.parametrize("code", [0, 3])
def test_package_names_are_shown_and_the_errors_and_exit_code_of_pip_are_kept(tmp_path: Path, code: int) -> None:
    python = tmp_path / "python"
    python.write_text(PIP.replace("CODE", str(code)))
    python.chmod(0o755)
    done = subprocess.run(
        [ROOT / "tools" / "install.sh", str(python), "--editable", ".[fast]"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == code
    assert done.stdout == "  click\n  fsspec\n  putting them in place\n"
    assert done.stderr == "got -m pip install --progress-bar off --editable .[fast]\n"
