"""The panels, one to a file: each has a PANEL."""
