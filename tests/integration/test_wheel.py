"""The built wheel, alone in a fresh environment and another folder, runs a task and sees all it ships."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Interpreter of an environment that holds the wheel and sees this one's packages, but not this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT))
    run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    python = folder / "venv" / "bin" / "python"
    site = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # a path in a .pth is searched after the environment's own packages, and its own .pth files (the editable install)
    # are not read
    (site / "first.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel))
    return python


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_everything_imports_from_the_wheel(python: Path, tmp_path: Path) -> None:
    code = (
        "import harness_heads, harness_heads.tasks, harness_heads.protocol, harness_heads.head_sets;"
        "print(harness_heads.__file__, harness_heads.tasks.__file__, harness_heads.protocol.__file__)"
    )
    for path in run(str(python), "-c", code, cwd=tmp_path).split():
        assert Path(path).is_relative_to(python.parents[1])


def test_every_data_file_is_in_the_wheel(python: Path, tmp_path: Path) -> None:
    """All tracked files of the packages, whatever their ending."""
    root = Path(run(str(python), "-c", "import harness_heads; print(harness_heads.__path__[0])", cwd=tmp_path).strip())
    tracked = run("git", "-C", str(ROOT), "ls-files", "harness_heads", "tasks", "protocol").split("\n")
    names = [n.removeprefix("harness_heads/") for n in tracked if n and not (ROOT / n).is_symlink()]
    missing = [name for name in names if not (root / name).exists()]
    assert not missing


def test_a_task_runs_from_the_wheel(python: Path, tmp_path: Path) -> None:
    launcher = python.parent / "lmms_eval"
    out = run(str(launcher), "--model", "dummy", "--tasks", "ncs_digits", "--limit", "4", cwd=tmp_path)
    assert "ncs_digits" in out
    assert list((tmp_path / "reports" / "runs").rglob("*_samples_ncs_digits.jsonl"))
