"""The one option of the suite, and Ctrl-C as programs find it at a terminal."""

import signal

# A shell that starts the suite in the background has told it, and all that it starts, to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write what the renderers give to tests/report/golden; read the diff")
