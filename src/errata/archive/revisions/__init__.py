"""Corrections of archived rows: pending revisions, where their rows are, what they decide, overlays, and undo."""
