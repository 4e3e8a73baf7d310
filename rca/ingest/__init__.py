"""Bytes to events: this room knows sources."""
