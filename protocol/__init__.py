"""Statistics, evidence, checklist, pitfalls and the report. Torch-free."""
