"""The one option of the suite."""


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write what the renderers give to tests/report/golden; read the diff")
