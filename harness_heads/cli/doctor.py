"""``harness-heads doctor``: what is installed, what lmms-eval sees, whether an intervention acts on a model."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from tabulate import tabulate

from harness_heads.cli.launch import in_our_words
from harness_heads.errors import HarnessHeadsError, did_you_mean

PACKAGES = ("lmms-eval", "transformers", "torch", "torchvision", "datasets", "accelerate", "filelock", "decord")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser(
        "doctor",
        help="check the installation; with --model, prove an intervention on that model",
        description=__doc__,
    )
    parser.add_argument("--model", help="masked_qwen3vl, steered_..., or a model itself: tiny-digits, a hub id")
    parser.add_argument("--model_args", default="", help="as for lmms_eval")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one row per check; 0 only if all pass."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", _python),
        *((name, _package(name)) for name in PACKAGES),
        ("device", _device),
        ("lmms-eval: our models", _models),
        ("lmms-eval: our tasks", _tasks),
        ("embedded model", _embedded),
    ]
    if arguments.model:
        checks.append((f"{arguments.model}", lambda: prove(*named(arguments.model, arguments.model_args))))
    rows, failed = [], 0
    for name, check in checks:
        try:
            rows.append((name, "ok", check()))
        except Exception as error:  # a doctor names every failure and goes on to the next check
            failed += 1
            told = str(in_our_words(error) or error) or type(error).__name__
            rows.append((name, "FAILED", told.splitlines()[0]))
    print(tabulate(rows, tablefmt="plain"))
    return 1 if failed else 0


def _python() -> str:
    return sys.version.split()[0]


def _package(name: str) -> Callable[[], str]:
    def check() -> str:
        importlib.import_module({"lmms-eval": "lmms_eval"}.get(name, name))
        found = version(name)
        if name == "filelock" and int(found.split(".")[0]) >= 4:
            raise HarnessHeadsError(f"{found}; lmms-eval needs filelock<4 (pip install 'filelock<4')")
        return found

    return check


def _device() -> str:
    import torch

    if not torch.cuda.is_available():
        return f"cpu, {torch.get_num_threads()} threads; models load in float32"
    return str(torch.cuda.get_device_name())


def _models() -> str:
    from lmms_eval.models import list_available_models

    from harness_heads.models.manifests import manifests

    missing = sorted({m.model_id for m in manifests()} - set(list_available_models()))
    if missing:
        raise HarnessHeadsError(f"not registered: {', '.join(missing)}; reinstall the package (pip install .)")
    return f"{len(manifests())} registered"


def _tasks() -> str:
    from lmms_eval.tasks import TaskManager

    from harness_heads.cli.run_arguments import TASKS

    names = sorted(set(TaskManager(include_path=str(TASKS)).all_tasks) - set(TaskManager().all_tasks))
    if not names:
        raise HarnessHeadsError(f"no task found under {TASKS}")
    return f"{len(names)} found under {TASKS}"


def _embedded() -> str:
    from harness_heads.tiny import NAME, WEIGHTS

    weights = WEIGHTS / "model.safetensors"
    if not weights.exists():
        raise HarnessHeadsError(f"{weights} is missing; reinstall the package")
    return f"{NAME}, {weights.stat().st_size / 1e6:.1f} MB"


def named(model: str, model_args: str) -> tuple[str, str]:
    """Class and model_args of ``--model``, which may name the weights themselves.

    Args:
        model: one of our classes, an embedded model, or the hub id of a host's default (masked by that host).
        model_args: as for ``lmms_eval``; without ``controls`` none are drawn, a proof needs none.

    Raises:
        HarnessHeadsError: ill-formed model_args, or a model whose host cannot be told from its name.
    """
    from harness_heads.cli.run_arguments import check_model_args
    from harness_heads.models.hosts import HOSTS, PREFIXES, wrapper_name
    from harness_heads.models.loading import EMBEDDED

    parts = [part for part in model_args.split(",") if part]
    if not any(part.strip().startswith("controls=") for part in parts):
        parts.append("controls=0")
    if model.split("_")[0] not in PREFIXES:
        hosts = {host.pretrained: host for host in HOSTS if host.pretrained}
        hosts |= dict.fromkeys(EMBEDDED, HOSTS[0])
        if model not in hosts:
            hint = did_you_mean(model, filter(None, hosts))
            raise HarnessHeadsError(
                f"{model!r} is neither one of our models nor a host's default{hint}; "
                f"name its host: --model masked_qwen3vl --model_args pretrained={model}"
            )
        parts.insert(0, f"pretrained={model}")
        model = wrapper_name("masked", hosts[model])
    check_model_args(",".join(parts))
    return model, ",".join(parts)


def prove(model: str, model_args: str) -> str:
    """Load a wrapped model and answer one small question under its intervention, with the self-check.

    Returns:
        One line with the figures of the proof.
    """
    from lmms_eval.api.instance import Instance
    from lmms_eval.models import get_model
    from PIL import Image

    from harness_heads.conditions import Condition
    from harness_heads.probes import Probe, probe_result_from_json
    from harness_heads.regions import Region

    wrapped: Any = get_model(model).create_from_arg_string(model_args, {"batch_size": 1})
    image = Image.linear_gradient("L").resize((128, 128)).convert("RGB")
    op = wrapped.op
    region = {"left": Region(((0.0, 0.0, 64.0, 128.0),))}
    condition = {
        "mask": Condition("mask"),
        "steer": Condition("steer", "left", beta="hard"),
        "ablate": Condition("ablate", ""),
    }[op]
    probe = Probe("options", "doctor", "doctor", "only", ("A", "B"), (condition,), region)
    question = "Which side of the image is brighter?\nA. the top\nB. the bottom"

    def messages(_: object) -> list[dict[str, Any]]:
        content = [{"type": "image", "url": image}, {"type": "text", "text": question}]
        return [{"role": "user", "content": content}]

    wrapped.task_dict["doctor"] = {"test": [None]}
    request = Instance(
        "generate_until",
        (question, messages, {"max_new_tokens": 1}, 0, "doctor", "test"),
        0,
        {"task": "doctor", "doc_id": 0, "repeats": 1, "probe": probe.to_dict()},
    )
    (answer,) = wrapped.generate_until([request])
    result = probe_result_from_json(answer)
    if result is None or result.run is None or result.run["proof"] is None:
        raise HarnessHeadsError("the intervention was not proved (verify=False?)")
    proof = result.run["proof"]
    return (
        f"proved {', '.join(proof['conditions'])} in layers {proof['layers']}: "
        f"{proof['reference_gap']:.2g} from the dense reference (tolerance {proof['tolerance']:g}, {proof['dtype']}), "
        f"effect {proof['effect']:.2g}; touched heads {proof['local_gap']:.2g} of the largest value from it"
        + (f"; too weak to tell acting from not acting: {', '.join(proof['weak'])}" if proof["weak"] else "")
    )
