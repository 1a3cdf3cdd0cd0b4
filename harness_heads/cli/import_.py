"""``harness-heads import``: turn a foreign head list into a head-set file."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from harness_heads.errors import HarnessHeadsError
from harness_heads.heads import Geometry
from harness_heads.protocol.formats import counted


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("import", help="read a foreign head list", description=__doc__)
    parser.add_argument("source", help="CSV, TSV, JSON or text file, or the list itself: 16-19,16-2")
    parser.add_argument("--model", required=True, help="hub id, folder or tiny-digits that the heads belong to")
    parser.add_argument("--name", help="name of the set (default imported/<file>, of --output where it is given)")
    parser.add_argument("-o", "--output", dest="file", type=Path, help="head-set file to write (default <name>.json)")
    parser.add_argument("--order", choices=("layer,head", "head,layer"), default="layer,head")
    parser.add_argument("--base", type=int, choices=(0, 1), default=0, help="index of the first layer and head")
    parser.add_argument(
        "--geometry", help="LAYERSxHEADS or LAYERSxHEADSxKV, where the model's configuration is out of reach"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read the list, write the file, say what was read."""
    from harness_heads.discovery.geometry import geometry_of
    from harness_heads.discovery.importing import import_heads
    from harness_heads.head_sets import model_id
    from harness_heads.heads import ModelRef

    geometry = parse_geometry(args.geometry) if args.geometry else geometry_of(args.model)
    name = args.name or f"imported/{default_name(args.source, args.file)}"
    head_set = import_heads(
        args.source,
        name=name,
        model=ModelRef(model_id(args.model)),
        geometry=geometry,
        order=args.order,
        base=args.base,
    )
    file = args.file or Path(f"{name.replace('/', '__')}.json")
    if file.exists() and file.read_bytes() != head_set.to_json().encode():
        raise HarnessHeadsError(f"{file} exists and holds something else; remove it, or name another file with -o")
    head_set.save(file)
    shown = ", ".join(str(h) for h in head_set.heads[:5])
    print(
        f"{head_set.name}: {counted(len(head_set), 'head')} ({shown}{', ...' if len(head_set) > 5 else ''}) -> {file}"
    )
    return 0


def default_name(source: str, file: Path | None) -> str:
    """What a set is called that nobody named: by its file, its source, or a digest of the list itself.

    Two lists never share a name by default: sets of one name cannot stand in one run.
    """
    if file is not None:
        return file.stem
    if len(source) < 256 and Path(source).expanduser().is_file():
        return Path(source).stem
    return f"heads-{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def parse_geometry(text: str) -> Geometry:
    """Read ``36x32`` or ``36x32x8``.

    Raises:
        HarnessHeadsError: anything else.
    """
    parts = text.lower().split("x")
    if len(parts) not in (2, 3) or not all(p.isdigit() and int(p) for p in parts):
        raise HarnessHeadsError(f"geometry {text!r}: write LAYERSxHEADS or LAYERSxHEADSxKV, for example 36x32x8")
    numbers = [int(p) for p in parts]
    layers, heads = numbers[0], numbers[1]
    return Geometry((heads,) * layers, (numbers[2],) * layers if len(numbers) == 3 else None)
