"""Our list of hosts against lmms-eval's own registry, and the entry point as lmms-eval loads it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from lmms_eval.models import MODEL_REGISTRY_V2

from harness_heads.models.hosts import HOSTS, PREFIXES, Host, host_of, wrapper_name
from harness_heads.models.manifests import manifests


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.model_id)
def test_every_host_is_a_chat_class_of_lmms_eval(host: Host) -> None:
    manifest = MODEL_REGISTRY_V2.get_manifest(host.model_id)
    assert manifest.chat_class_path == host.class_path


def test_every_name_resolves_to_one_of_our_classes() -> None:
    for prefix in PREFIXES:
        for host in HOSTS:
            for short in host.short:
                resolved = MODEL_REGISTRY_V2.resolve(f"{prefix}_{short}")
                assert resolved.class_path == f"harness_heads.models.wrapped.{prefix}_{host.model_id}"
                assert resolved.model_type == "chat"


def test_names_are_unique() -> None:
    names = [name for m in manifests() for name in (m.model_id, *m.aliases)]
    assert len(names) == len(set(names))


def test_documented_names() -> None:
    assert wrapper_name("masked", host_of("qwen3_vl")) == "masked_qwen3vl"


def test_the_entry_point_loads_no_torch() -> None:
    """A heavy or failing import there would hide every plug-in of lmms-eval."""
    code = "import sys, harness_heads.models.hosts, harness_heads.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
