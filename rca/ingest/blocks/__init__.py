"""Things that span several lines and are one event each: one file per kind of block."""
