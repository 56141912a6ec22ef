"""The real command, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def newfound(*words: Any, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "newfound", *map(str, words)],
        cwd=cwd,
        env=os.environ | {"COLUMNS": "200"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
