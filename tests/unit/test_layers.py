"""The house's one rule: a module imports only from the layers above it (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "harness_heads"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("tiny",),
    ("heads", "regions"),
    ("conditions", "boxes", "answers"),
    ("probes", "scoring", "settings"),
    ("controls", "head_sets"),
    ("layouts",),
    ("interventions",),
    ("families",),
    ("attention",),
    ("reading",),
    ("engine",),
    ("verify",),
    ("library",),
    ("discovery",),
    ("protocol",),
    ("tasks",),
    ("models",),
    ("cli",),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
TORCH_FREE = ("errors", "heads", "regions", "conditions", "boxes", "answers", "probes", "scoring", "settings")
TORCH_FREE += ("controls", "head_sets", "protocol", "tasks")
HEAVY = ("torch", "transformers", "accelerate")


def unit_of(path: Path) -> str:
    """Layer unit of a file: ``engine_replay.py`` belongs to ``engine``, a package's files to the package."""
    name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "engine" if name.startswith("engine") else name


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
    unit = unit_of(path)
    assert unit in RANK, f"{path}: name its layer in tests/unit/test_layers.py and docs/architecture.md"
    for name in imports(path):
        if name.startswith("harness_heads.") and not name.startswith("harness_heads.__"):
            other = name.split(".")[1]
            other = "engine" if other.startswith("engine") else other
            assert other == unit or RANK[other] < RANK[unit], f"{path.relative_to(ROOT)} imports {name}"
        if unit in TORCH_FREE:
            assert name.split(".")[0] not in HEAVY, f"{path.relative_to(ROOT)} imports {name}"
        if unit == "protocol":
            assert name.split(".")[0] != "lmms_eval", f"{path.relative_to(ROOT)} imports {name}"


def test_the_rule_covers_the_whole_package() -> None:
    assert len(sources()) > 30
    assert {unit_of(path) for path in sources()} <= set(RANK)
