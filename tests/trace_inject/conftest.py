"""Only the tests are collected here: `http_clients.py` runs as a script, in an environment with its libraries."""

collect_ignore = ["http_clients.py"]
