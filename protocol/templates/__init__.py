"""Templates, style sheet and script of the report; a package so that a wheel carries them."""
