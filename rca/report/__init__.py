"""Verdict to text: this room knows readers. One renderer per file."""
