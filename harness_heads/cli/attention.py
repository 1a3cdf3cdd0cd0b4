"""``harness-heads attention``: where heads look on a picture, and what an intervention takes away."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness_heads.errors import HarnessHeadsError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser("attention", help="draw attention maps", description=__doc__)
    parser.add_argument("--model", required=True, help="hub id, folder, or tiny-digits")
    parser.add_argument("--head-set", help="shipped name, file or discovery folder (default: the model's own)")
    parser.add_argument("--image", type=Path, help="picture (tiny-digits: a digit strip is drawn without one)")
    parser.add_argument("--text", help="what the user says after the picture")
    parser.add_argument("--locate", metavar="PHRASE", help="instead of --text: the family's own question for a box")
    parser.add_argument("--box", type=_box, action="append", default=[], help="x0,y0,x1,y1 of the referent, in pixels")
    parser.add_argument("--rows", default="answer", help="rows that look: answer, last or question")
    parser.add_argument(
        "--intervene", choices=("none", "ablate", "mask"), default="none", help="what is done to the set"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the digit strip")
    parser.add_argument("-o", "--output", dest="file", type=Path, default=Path("attention.svg"))
    parser.add_argument("--dtype")
    parser.add_argument("--device")
    parser.set_defaults(run=run)


def _box(text: str) -> tuple[float, float, float, float]:
    try:
        x0, y0, x1, y1 = (float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: write x0,y0,x1,y1") from error
    return (x0, y0, x1, y1)


def run(args: argparse.Namespace) -> int:
    """Read, draw, and say what the groups of heads give to the referent."""
    from harness_heads.cli.drawings import check_svg
    from harness_heads.conditions import Condition
    from harness_heads.discovery.loading import load
    from harness_heads.discovery.maps import PANELS, draw_maps, read_maps
    from harness_heads.discovery.samples import open_image
    from harness_heads.head_sets import check_model, default_for, resolve
    from harness_heads.regions import Region

    check_svg(args.file, "--output")
    if args.text and args.locate:
        raise HarnessHeadsError("give --text or --locate, not both")
    loaded = load(args.model, dtype=args.dtype, device=args.device)
    spec = args.head_set or default_for(loaded.reference.id)
    head_set = check_model(resolve(spec), loaded.reference, loaded.geometry)
    boxes, words = list(args.box), args.text
    if args.locate:
        if not loaded.family.grounding_prompt:
            raise HarnessHeadsError(f"family {loaded.family.name} has no documented question for a box; use --text")
        words = loaded.family.grounding_prompt.replace("{expression}", args.locate)
    if args.image is not None:
        image = open_image(args.image, str(args.image))
        if not words:
            raise HarnessHeadsError("give --text or --locate: what is asked about the picture")
    else:
        if loaded.reference.id != "tiny-digits":
            raise HarnessHeadsError("give --image")
        from harness_heads.discovery.corpora.digits import Digits

        sample = Digits(args.seed).sample(0, "loc" if words is None else "ref")
        image, ask = sample.images[0], sample.asks[2]
        words, boxes = words or ask.text, boxes or list(sample.regions[ask.target].boxes)
    referent = Region(tuple(boxes)) if boxes else None
    if referent is not None:
        referent = referent.inside(*image.size, "--box")
    condition = None
    if args.intervene != "none":
        condition = Condition("ablate", "") if args.intervene == "ablate" else Condition("mask", "image")
    maps = read_maps(loaded, head_set, image, words, referent=referent, rows=args.rows, condition=condition)
    args.file.parent.mkdir(parents=True, exist_ok=True)
    title = f"{head_set.name} on {loaded.reference.id}: {words.splitlines()[0][:90]}"
    args.file.write_text(draw_maps(maps, image, boxes, title, condition), encoding="utf-8")
    print(f"answer: {maps.answer}")
    for name in PANELS:
        line = f"{name}: mean attention on {maps.where} {maps.mean(name):.4f}"
        if maps.after:
            line += f", under the intervention {maps.mean(name, after=True):.4f}"
        print(line)
    print(f"-> {args.file}")
    return 0
