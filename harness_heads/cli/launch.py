"""``lmms_eval``: lmms-eval with our tasks and models findable, results traceable, and failures that exit non-zero.

lmms-eval itself exits with status 0 when a task is unknown or an evaluation raises; here every failure is status 1,
and an error that a user can mend is one line.
"""

from __future__ import annotations

import datetime
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness_heads.allocator import keep_freed_memory
from harness_heads.errors import HarnessHeadsError, did_you_mean


def main(argv: Sequence[str] | None = None) -> int:
    """Run an evaluation; the exit status is 0 only if every task was scored and stored."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except HarnessHeadsError as error:
        print(f"lmms_eval: error: {error}", file=sys.stderr)
        return 1
    except SystemExit as leaving:
        return int(leaving.code) if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        print("lmms_eval: interrupted; run the same command with the same --output_path to go on", file=sys.stderr)
        return 130
    except Exception as error:  # lmms-eval raises what it likes; ours are told in one line, others with their trace
        cause = _ours(error) or in_our_words(error)
        if cause is not None:
            print(f"lmms_eval: error: {cause}", file=sys.stderr)
        else:
            traceback.print_exc()
            print(f"lmms_eval: error: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _run(arguments: list[str]) -> int:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    keep_freed_memory()
    from harness_heads.cli.report import report_on
    from harness_heads.cli.run_arguments import parse, prepare
    from harness_heads.models.run_info import write_expected

    namespace, data = parse(arguments)
    if namespace.config:
        raise HarnessHeadsError(
            "--config is not read by this launcher; name model, model_args and tasks on the command line"
        )
    folder = prepare(namespace, data)
    _quiet(namespace.verbosity)

    from accelerate import Accelerator
    from accelerate.utils import InitProcessGroupKwargs
    from lmms_eval.__main__ import cli_evaluate_single
    from lmms_eval.utils import make_table

    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=datetime.timedelta(hours=16))])
    results, samples = cli_evaluate_single(namespace)
    accelerator.wait_for_everyone()
    if not accelerator.is_main_process:
        return 0
    if results is None:
        raise HarnessHeadsError("lmms-eval returned no results; its messages above say why")
    print(make_table(results))
    if "groups" in results:
        print(make_table(results, "groups"))
    _check_stored(folder, samples)
    write_expected(folder, {task: int(n["effective"]) for task, n in results.get("n-samples", {}).items()})
    if _intervened(samples or {}):
        print(f"protocol report: {report_on([folder], folder / 'report').html}")
    else:
        print(f"results: {folder}")
    return 0


def _intervened(samples: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether some item was answered under an intervention (stock models leave their words alone)."""
    records = (sample.get("record") for task in samples.values() for sample in task)
    # a stock task may call a metric of its own "record"
    ours = (record for record in records if isinstance(record, dict) and isinstance(record.get("arms"), dict))
    return any(arm is not None for record in ours for arm in record["arms"].values())


def _check_stored(folder: Path, samples: Any) -> None:
    """lmms-eval only logs a failure to write; results that are not on disk are no results."""
    if not list(folder.rglob("*_results.json")) or (samples and not list(folder.rglob("*_samples_*.jsonl"))):
        raise HarnessHeadsError(f"results could not be stored under {folder}; is the folder writable?")


def _ours(error: BaseException) -> HarnessHeadsError | None:
    """Our error behind lmms-eval's retries: what ``process_results`` and ``download`` raise arrives in a RetryError."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return None
        if isinstance(seen, HarnessHeadsError):
            return seen
        attempt = getattr(seen, "last_attempt", None)
        inner = attempt.exception() if attempt is not None and attempt.done() else None
        seen = inner or seen.__cause__ or seen.__context__
    return None


def in_our_words(error: BaseException) -> HarnessHeadsError | None:
    """What a user mistyped and lmms-eval answers with every name it knows: one line with the nearest name."""
    from harness_heads.models.hosts import HOSTS, PREFIXES
    from harness_heads.tasks.catalogue import catalogue

    text = str(error)
    if match := re.match(r"Tasks not found: (.*?)\. Try ", text):
        names = [name.strip() for name in match[1].split(",")]
        hints = [f"{name!r}{did_you_mean(name, catalogue())}" for name in names]
        return HarnessHeadsError(f"no task is called {', '.join(hints)} (`lmms_eval --tasks list` prints all)")
    if match := re.match(r"Model '(.*?)' not found", text):
        known = {f"{prefix}_{short}" for prefix in PREFIXES for host in HOSTS for short in (host.model_id, *host.short)}
        hint = did_you_mean(match[1], known)
        hosts = ", ".join(host.short[0] for host in HOSTS)
        return HarnessHeadsError(
            f"no model is called {match[1]!r}{hint} (ours: {'_, '.join(PREFIXES)}_ before one of {hosts})"
        )
    return None


def _quiet(verbosity: str) -> None:
    """lmms-eval's own log format at the wanted level."""
    from loguru import logger

    logger.remove()
    logger.add(sys.stderr, level="WARNING" if verbosity == "INFO" else verbosity)


if __name__ == "__main__":
    sys.exit(main())
