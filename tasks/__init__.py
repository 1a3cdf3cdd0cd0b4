"""Tasks: the YAMLs, the recipes that build items from data, and the lmms-eval task class."""
