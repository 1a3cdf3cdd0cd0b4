"""Find visual attention heads, intervene on them, and hold each claim to its random controls."""

__version__ = "0.1.0"
