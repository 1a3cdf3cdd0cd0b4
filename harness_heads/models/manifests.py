"""What the entry point ``lmms_eval.models`` returns. Imports must stay light: one that raises hides all plug-ins."""

from __future__ import annotations

from lmms_eval.models.registry_v2 import ModelManifest

from harness_heads.models.hosts import HOSTS, PREFIXES, wrapper_name


def manifests() -> list[ModelManifest]:
    """One manifest per (prefix, host); aliases are the host's further short names."""
    return [
        ModelManifest(
            model_id=wrapper_name(prefix, host),
            chat_class_path=f"harness_heads.models.wrapped.{prefix}_{host.model_id}",
            aliases=tuple(f"{prefix}_{short}" for short in host.short[1:]),
        )
        for prefix in PREFIXES
        for host in HOSTS
    ]
