"""Adding a method touches one file and one line: those that CONTRIBUTING.md shows."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import newfound

ROOT = Path(__file__).parents[2]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def example():
    """The file that the page shows."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return textwrap.dedent(re.search(r"^ *```python\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE)[1])


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the package with one method more."""
    root = tmp_path_factory.mktemp("house")
    methods = root / "src" / "newfound" / "methods"
    shutil.copytree(Path(newfound.__file__).parent, methods.parent, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    (methods / "compact.py").write_text(example(), encoding="utf-8")
    text = (methods / "__init__.py").read_text(encoding="utf-8")
    for before, more in (
        ("from newfound.methods import (\n", "    compact,\n"),
        ("METHODS: dict[str, Recipe] = {\n", '    "compact": compact.recipe,\n'),
    ):
        assert text.count(before) == 1
        text = text.replace(before, before + more)
    (methods / "__init__.py").write_text(text, encoding="utf-8")
    return root


def python(house, *words, cwd=ROOT):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(house / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_the_tests_of_all_methods_and_budgets_ask_it_too(house):
    asking = ["tests/methods/test_contract.py", "tests/methods/test_spacing.py", "tests/benchmark/test_budgets.py"]
    done = python(house, "-m", "pytest", "-vv", "-p", "no:cacheprovider", "-k", "compact", *asking)
    assert done.returncode == 0, done.stdout
    assert all(f"{path}::" in done.stdout for path in asking)
    assert "[compact+spacing-True-mixed]" in done.stdout


def test_it_is_among_the_methods_that_train_in_two_processes(house):
    done = python(house, "-m", "pytest", "--collect-only", "-k", "compact", "tests/training/test_processes.py")
    assert all(f"[{case}]" in done.stdout for case in ("compact:1", "compact:2", "compact+spacing:1")), done.stdout


def test_the_command_line_lists_it(house, tmp_path):
    done = python(house, "-m", "newfound", "methods", cwd=tmp_path)
    assert re.search(r"compact .* Doe and Roe, 2027 .* one or two .* latents .* k-means", done.stdout), done.stderr


def test_the_rule_of_imports_holds_for_it(house, tmp_path):
    done = python(house, "-c", LINT, cwd=house)
    assert done.returncode == 0, done.stdout
    other = shutil.copytree(house, tmp_path / "other")
    with (other / "src/newfound/methods/compact.py").open("a", encoding="utf-8") as file:
        file.write("from newfound.methods import rs\n")
    done = python(other, "-c", LINT, cwd=other)
    assert done.returncode == 1
    assert "newfound.methods.compact is not allowed to import newfound.methods.rs" in done.stdout
