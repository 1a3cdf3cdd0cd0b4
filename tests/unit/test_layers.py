"""The house's one rule: a module imports only from the layers above it (docs/architecture.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "harness_heads"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("allocator",),
    ("plain",),
    ("tiny",),
    ("geometry",),
    ("heads", "regions"),
    ("conditions", "boxes", "answers"),
    ("probes", "scoring", "settings"),
    ("controls",),
    ("head_sets",),
    ("layouts",),
    ("interventions",),
    ("families",),
    ("attention",),
    ("weights",),
    ("engine_pairs",),
    ("reading",),
    ("engine",),
    ("library",),
    ("discovery",),
    ("protocol",),
    ("tasks",),
    ("models",),
    ("cli",),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
TORCH_FREE = (
    "errors",
    "allocator",
    "plain",
    "geometry",
    "heads",
    "regions",
    "conditions",
    "boxes",
    "answers",
    "probes",
    "scoring",
    "settings",
)
TORCH_FREE += ("controls", "head_sets", "protocol", "tasks")
HEAVY = ("torch", "transformers", "accelerate")


def unit(name: str) -> str:
    """Layer unit of a module: ``engine_replay`` belongs to ``engine``, and so does ``verify``, since the engine proves
    itself before it scores; ``engine_pairs``, the arithmetic of single heads, stands below both."""
    if name == "engine_pairs":
        return name
    return "engine" if name.startswith(("engine", "verify")) else name


def unit_of(path: Path) -> str:
    """Layer unit of a file; a package's files belong to the package."""
    return unit(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))


def sources() -> list[Path]:
    return sorted(
        path
        for path in PACKAGE.rglob("*.py")
        if path.parent != PACKAGE or path.name not in ("__init__.py", "__main__.py")
    )


def imports(path: Path) -> set[str]:
    """Dotted names of every import statement, those inside functions included."""
    out: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.level:
                continue  # inside its own package
            if node.module == "harness_heads":
                out |= {f"harness_heads.{alias.name}" for alias in node.names}
            else:
                out.add(node.module)
    return out


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_upwards_only(path: Path) -> None:
    mine = unit_of(path)
    assert mine in RANK, f"{path}: name its layer in tests/unit/test_layers.py and docs/architecture.md"
    for name in imports(path):
        if name.startswith("harness_heads.") and not name.startswith("harness_heads.__"):
            other = unit(name.split(".")[1])
            assert other == mine or RANK[other] < RANK[mine], f"{path.relative_to(ROOT)} imports {name}"
        if mine in TORCH_FREE:
            assert name.split(".")[0] not in HEAVY, f"{path.relative_to(ROOT)} imports {name}"
        if mine == "protocol":
            assert name.split(".")[0] != "lmms_eval", f"{path.relative_to(ROOT)} imports {name}"


def test_the_rule_covers_the_whole_package() -> None:
    assert len(sources()) > 30
    assert {unit_of(path) for path in sources()} <= set(RANK)


def test_help_waits_for_nothing_heavy() -> None:
    """The parser of all subcommands is built without torch: help and mistakes in a command are answered at once."""
    code = "import sys; from harness_heads.cli.main import build_parser; build_parser(); print([*sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "harness_heads.cli.run" in loaded
    assert not [name for name in HEAVY if f"'{name}'" in loaded]
