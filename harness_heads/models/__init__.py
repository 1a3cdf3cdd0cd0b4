"""lmms-eval model classes: every host under ``masked_*``, ``steered_*`` and ``ablated_*``, by one mixin."""
