"""The mechanisms along which a cause travels: one file per kind of edge, found by listing this folder."""
