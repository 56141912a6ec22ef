"""The real command, in the process of the test: the same words in, the same exit code and text out."""

import io
import signal
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from newfound.cli import main


def newfound(*words: Any, cwd: Path, **environment: str) -> CompletedProcess[str]:
    """What a shell would see of `newfound words …` in a folder. An error that no person can mend is raised as it is."""
    line = ["newfound", *map(str, words)]
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # as strict about signs as a pipe
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    code: Any = 0
    with pytest.MonkeyPatch.context() as patch, chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", line)
        for name, value in ({"COLUMNS": "200"} | environment).items():
            patch.setenv(name, value)
        try:
            main()
        except SystemExit as end:
            code = end.code
    return CompletedProcess(line, code, *(_text(stream) for stream in (out, err)))


def hear_ctrl_c() -> None:
    """What a new process does before anything else, so that Ctrl-C reaches it: children of background jobs are deaf."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
