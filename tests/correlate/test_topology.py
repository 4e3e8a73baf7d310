"""What an operator gives: read from TOML and JSON, refused with file and key, and used before what logs say."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from rca.correlate.correlate import correlate
from rca.correlate.identity import resolve
from rca.correlate.topology import Host, Member, read
from rca.errors import RcaError
from rca.ingest.read import ingest

DOCS = Path(__file__).resolve().parents[2] / "docs" / "topology.md"
EXAMPLE = re.search(r"```toml\n(.*?)```", DOCS.read_text("utf-8"), re.S)[1]


def write(folder: Path, text: str, name: str = "cluster.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_documented_example(tmp_path: Path) -> None:
    """The example of docs/topology.md is valid and means what its comments say."""
    found = read(write(tmp_path, EXAMPLE))
    assert [h.name for h in found.hosts] == ["gn28", "gn29"] and found.hosts[0].ips == ("10.29.1.28", "192.168.7.28")
    assert [(m.role, m.rank, m.host, m.gpus, m.port) for m in found.ranks] == [
        ("train", 0, "gn28", (0,), None), ("train", 1, "gn28", (1,), None), ("train", 2, "gn29", (0,), None), ("train", 3, "gn29", (1,), None),
        ("rollout", 0, "gn29", (0, 1), 30000),
    ]  # fmt: skip
    assert found.sizes == {"tp": 2} and found.groups == {"dp": ((0, 2), (1, 3))}
    assert found.storage == ("stor01", "10.92.0.32") and found.colocated == (frozenset({"train", "rollout"}),)


def test_json_has_the_same_keys(tmp_path: Path) -> None:
    """The example as JSON is the same topology."""
    assert read(write(tmp_path, json.dumps(tomllib.loads(EXAMPLE)), "cluster.json")) == read(write(tmp_path, EXAMPLE))


def test_nothing_is_required(tmp_path: Path) -> None:
    """An empty file and a host with nothing but a name are valid."""
    assert read(write(tmp_path, "")).hosts == ()
    assert read(write(tmp_path, '[[host]]\nname = "a"\n')).hosts == (Host("a"),)
    assert read(write(tmp_path, "[[rank]]\nrank = 3\nhost = \"elsewhere\"\n")).ranks == (Member("train", 3, "elsewhere"),)


WRONG = [
    ("hosts = 1", "`hosts`: is not known", "did you mean `host`?"),
    ("host = 1", "`host`: must be a list of tables", "[[host]]"),
    ("[[host]]\nips = []", "`host[0].name`: must be the host's name", None),
    ('[[host]]\nname = "a"\nips = ["10.0.0.999"]', "`host[0].ips`: `10.0.0.999` is no address", None),
    ('[[host]]\nname = "a"\nips = "10.0.0.9"', "`host[0].ips`: must be a list of texts", None),
    ('[[host]]\nname = "a"\ngpus = ["7"]', "`host[0].gpus`: `7` is no bus id", "nvidia-smi"),
    ('[[host]]\nname = "a"\nips = ["10.0.0.1"]\n[[host]]\nname = "b"\nips = ["10.0.0.1"]', "`host`: `10.0.0.1` is given to a and to b", None),
    ('[[host]]\nname = "a"\n[[host]]\nname = "a"', "`host`: `a` is given twice", None),
    ('[[host]]\nname = "gn29"\n[[rank]]\nrank = 0\nhost = "gn92"', "`rank[0].host`: no host of this file is called `gn92`", "did you mean `gn29`?"),
    ("[[rank]]\ngpus = [0]", "`rank[0]`: must have either `rank`", None),
    ("[[rank]]\nfirst = 0", "`rank[0].first`: needs `gpus`", None),
    ("[[rank]]\nrank = -1", "`rank[0].rank`: must be a whole number", None),
    ("[[rank]]\nrank = true", "`rank[0].rank`: must be a whole number", None),
    ('[[rank]]\nrank = 0\nrole = "trian"', "`rank[0].role`: `trian` is no role", "did you mean `train`?"),
    ("[[rank]]\nrank = 0\n[[rank]]\nrank = 0", "`rank`: train rank 0 is given twice", None),
    ('[[host]]\nname = "a"\ngpus = ["07:00.0"]\n[[rank]]\nrank = 0\nhost = "a"\ngpus = [1]', "`rank[0].gpus`: a has 1 devices", None),
    ("[parallel]\ntp = 0", "`parallel.tp`: must be at least 1", None),
    ("[parallel]\ntpp = 2", "`parallel.tpp`: is not known", "did you mean `tp`?"),
    ("[parallel.groups]\ntp = [[0, 1], [1, 2]]", "`parallel.groups.tp`: rank 1 is in two groups", None),
    ("[[rank]]\nfirst = 0\ngpus = [0, 1, 2]\n[parallel]\ntp = 2", "`parallel`: tp x pp x cp is 2, which does not divide the 3 train ranks", None),
    ('colocated = ["train", "rollout"]', "`colocated`: must be a list of lists", "colocated ="),
    ('colocated = [["train", "rolout"]]', "`colocated[0]`: `rolout` is no role", "did you mean `rollout`?"),
    ("[storage]\nservers = [1]", "`storage.servers`: must be a list of texts", None),
    ("a = = 1", "neither TOML nor JSON", None),
    ("{", "neither TOML nor JSON", None),
]


@pytest.mark.parametrize(("text", "said", "hint"), WRONG, ids=[w[1][:50] for w in WRONG])
def test_mistakes_name_file_and_key(tmp_path: Path, text: str, said: str, hint: str | None) -> None:
    """Every complaint says which key of which file, and how it should be where that is known."""
    path = write(tmp_path, text)
    with pytest.raises(RcaError) as caught:
        read(path)
    assert said in caught.value.message and caught.value.where == str(path) and (hint is None or hint in (caught.value.hint or "")), str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing path, a folder, and bytes that are no text."""
    for path, said in ((tmp_path / "none.toml", "no such file"), (tmp_path, "cannot be read"), (tmp_path / "b.toml", "no UTF-8")):
        (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(RcaError, match=said):
            read(path)


def test_a_topology_holds_before_the_logs(tmp_path: Path) -> None:
    """A kernel log named by an address, an Xid with a bus id: host, GPU and users come from the file alone."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "10.29.1.29.dmesg.txt").write_text(
        "[Fri Nov 20 11:59:59 2026] NVRM: Xid (PCI:0000:0f:00): 48, pid=77, name=python, Ch 00000008\n"
    )
    (logs / "rank3.log").write_text("2026-11-20 12:00:00,000 INFO train: step=1 loss=2.0\n2026-11-20 12:00:05,000 ERROR train: RuntimeError: boom\n")
    readings, _ = ingest([logs], workers=1)
    run = correlate(readings, read(write(tmp_path, EXAMPLE)))
    xid = next(e for e in run.events if e.kind == "device.memory_error")
    assert (xid.host, xid.gpu) == ("gn29", 1)
    assert [(u["worker"], u["gpu"]) for u in xid.attrs["users"] if "gpu" in u] == [("train/3", 1)]
    assert {u["worker"] for u in xid.attrs["users"]} == {"train/3", "rollout/0"}
    who = resolve(readings, read(write(tmp_path, EXAMPLE)))
    assert who.workers.at("10.29.1.29", 30000).name == "rollout/0"
    assert who.name_of("trainer-0") == "gn28" and who.groups.of(2, "dp") == (0, 2)
