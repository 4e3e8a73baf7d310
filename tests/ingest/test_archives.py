"""Archives: their members are read like files, whatever packed them, and nothing hostile in them acts."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import resource
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import rca
from rca.ingest.archives import expand, unpack
from rca.ingest.read import ingest
from rca.ingest.sources import list_sources, read_all

BUNDLE = Path(rca.__file__).parent / "bundles" / "disk_full_at_save" / "logs"
SHARED = Path(__file__).parents[3] / "shared" / "cases"
CASES = [BUNDLE, *(next((SHARED / suite / name).glob("log*")) for suite, names in {
    "faultlab": ("02-prefetch-thread-died-peers-timeout", "08-segfault-native-with-faulthandler"), "coupling": ("001-qwen32b-tool-r3", "037-glm9b-mix-0b"),
}.items() for name in names if (SHARED / suite / name).is_dir())]  # fmt: skip
PACK = {
    "tar": lambda b: b, "tar.gz": lambda b: gzip.compress(b, mtime=0), "tgz": lambda b: gzip.compress(b, mtime=0), "tar.xz": lzma.compress, "tar.bz2": bz2.compress,
    "tar.zst": zstandard.ZstdCompressor().compress,
}  # fmt: skip
RARE = ("tgz", "tar.bz2")  # kinds that one case is enough for
TRACE = b'Traceback (most recent call last):\n  File "/srv/t.py", line 1, in f\n    g()\nOSError: [Errno 28] No space left on device\n'


def tar(members, format=tarfile.PAX_FORMAT) -> bytes:
    """A tar file of `(name, bytes or TarInfo)`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, content in members:
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.name = name
            if isinstance(content, bytes):
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return out.getvalue()


def zipped(members, method=zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file of `(name, bytes)`."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def files_of(folder: Path) -> list[tuple[str, bytes]]:
    return [(p.relative_to(folder).as_posix(), p.read_bytes()) for p in sorted(folder.rglob("*")) if p.is_file()]


def opened(path: Path, **options) -> dict[str, tuple]:
    """`{name: (content, reason)}` of all sources."""
    sources = expand(list_sources([path]), **options)
    assert sum(s.size for s in sources) == sum(p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*")) if p.is_file())
    return {s.name: (read_all(s, 1 << 24)[0], s.reason or read_all(s, 1 << 24)[1]) for s in sources}


def told(report, name="") -> list:
    """What a report says, with the archive's name taken off every address."""
    document = json.loads(json.dumps(report.document).replace(name, "")) if name else report.document
    document["coverage"]["sources"] = [{k: v for k, v in s.items() if k not in ("bytes", "skipped")} for s in document["coverage"]["sources"] if s["format"] != "archive"]
    return [document[k] for k in ("verdict", "summary", "hypotheses", "symptom", "timeline", "run", "coverage", "notes")]


@pytest.mark.parametrize(("kind", "folder"), [(k, f) for k in [*PACK, "zip"] for f in ([BUNDLE] if k in RARE else CASES)], ids=lambda v: v.parent.name if isinstance(v, Path) else v)
def test_an_archive_is_told_like_its_folder(tmp_path: Path, folder: Path, kind: str) -> None:
    """The same report but for the addresses, from memory, from disk and by all workers."""
    if folder.is_file():
        folder = folder.parent
    members = files_of(folder)
    (tmp_path / f"a.{kind}").write_bytes(zipped(members) if kind == "zip" else PACK[kind](tar(members)))
    report = rca.analyze(tmp_path / f"a.{kind}", workers=2)
    assert told(report, f"a.{kind}!/") == told(rca.analyze(folder))
    assert sum(report.document["stats"]["bytes"].values()) == (tmp_path / f"a.{kind}").stat().st_size
    assert not report.incomplete


def test_an_archive_per_node_names_its_host(tmp_path: Path) -> None:
    """`node-1.tar.gz` beside `node-2.tar.gz` says as much as folders of these names."""
    for host in ("node-1", "node-2"):
        (tmp_path / f"{host}.tar.gz").write_bytes(PACK["tar.gz"](tar([("rank.log", b"2026-11-20 12:00:00 step=1 loss=2.0\n" + TRACE)])))
    assert rca.analyze(tmp_path).document["run"]["hosts"] == ["node-1", "node-2"]


def test_archives_inside_folders_and_archives(tmp_path: Path) -> None:
    """One per node in a folder, and a bundle of bundles; deeper ones are said not to be read."""
    inner = PACK["tar.gz"](tar([("dmesg.log", b"a\n"), ("deep.tar.zst", PACK["tar.zst"](tar([("x", b"y\n")])))]))
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "logs.tgz").write_bytes(PACK["tgz"](tar([("./rank0.log", b"one\n"), ("rank1.log.gz", gzip.compress(b"two\n"))])))
    (tmp_path / "all.zip").write_bytes(zipped([("n2.tar.gz", inner), ("n3.zip", zipped([("a/b.log", b"three\n")])), ("n4.tar", tar([("c.log", b"four\n")]))]))
    found = opened(tmp_path)
    assert {name: content for name, (content, reason) in found.items() if not reason} == {
        "n1/logs.tgz!/rank0.log": b"one\n", "n1/logs.tgz!/rank1.log.gz": b"two\n", "all.zip!/n2.tar.gz!/dmesg.log": b"a\n",
        "all.zip!/n3.zip!/a/b.log": b"three\n", "all.zip!/n4.tar!/c.log": b"four\n",
    }  # fmt: skip
    assert found["all.zip!/n2.tar.gz!/deep.tar.zst"][1] == "an archive too deep inside archives"


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_every_dialect_of_tar(tmp_path: Path, format: int, kind: str) -> None:
    """Long names, names that are no ASCII, empty files, sizes at the edges of a block."""
    long = "d" * 90 + "/" + "f" * 99
    members = [(long, b"x\n"), ("空.log", b"y\n"), ("empty", b""), *((f"s{n}", b"z" * n) for n in (511, 512, 513, 700_000))]
    (tmp_path / "a").write_bytes(PACK[kind](tar(members, format)))
    assert {n.removeprefix("a!/"): c for n, (c, r) in opened(tmp_path / "a").items() if not r} == dict(members)


def test_hostile_names_lead_nowhere(tmp_path: Path) -> None:
    """Steps upwards, absolute paths and control characters are shown and never followed; nothing is written."""
    names = ["../../etc/passwd", "/etc/shadow", "a\x1b[2J\n.log", "C:\\x.log", "ok/./b.log"]
    for kind, data in (("tar", tar([(n, b"x\n") for n in names])), ("zip", zipped([(n, b"x\n") for n in names]))):
        (tmp_path / f"a.{kind}").write_bytes(data)
    before = sorted(p.name for p in tmp_path.iterdir())
    shown = {"%2E%2E/%2E%2E/etc/passwd", "%2Fetc/shadow", "a\\x1b[2J\\x0a.log", "C%3A/x.log", "ok/b.log"}
    assert {n.partition("!/")[2] for n, (c, r) in opened(tmp_path).items() if c == b"x\n"} == shown
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def link(target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_links_and_devices_are_never_followed(tmp_path: Path, kind: str) -> None:
    """A link to a member adds nothing; one out of the archive is said to lead there."""
    members = [
        ("logs/a.log", b"a\n"), ("latest", link("logs")), ("logs/b", link("a.log")), ("hard", link("logs/a.log", tarfile.LNKTYPE)), ("out", link("/etc/passwd")),
        ("up", link("../x")), ("fifo", link("", tarfile.FIFOTYPE)), ("disk", link("", tarfile.BLKTYPE)), ("logs/c.log", b"c\n"),
    ]  # fmt: skip
    (tmp_path / "a").write_bytes(PACK[kind](tar(members)))
    assert {n: r or c for n, (c, r) in opened(tmp_path / "a").items()} == {
        "a": "archive", "a!/logs/a.log": b"a\n", "a!/logs/c.log": b"c\n", "a!/out": "link out of the archive", "a!/up": "link out of the archive",
        "a!/fifo": "not a regular file", "a!/disk": "not a regular file",
    }  # fmt: skip


def test_of_two_members_of_one_name_the_last_counts(tmp_path: Path) -> None:
    """As `tar -r` means it; the first is counted and not read."""
    (tmp_path / "a.tar").write_bytes(tar([("x.log", b"old\n"), ("x.log", b"new\n")]))
    found = opened(tmp_path / "a.tar")
    assert found["a.tar!/x.log"] == (b"new\n", None) and found["a.tar!/x.log (0)"][1] == "replaced later in the archive"
    assert not rca.analyze(tmp_path / "a.tar").incomplete


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    """Encrypted, of an unknown method, with a wrong checksum: exit 3 and a reason each; the others are read."""
    data = bytearray(zipped([("secret.log", TRACE), ("odd.log", TRACE), ("bad.log", TRACE * 9), ("good.log", TRACE)]))
    local = [i for i in range(len(data)) if data[i : i + 4] == b"PK\3\4"]
    central = [i for i in range(len(data)) if data[i : i + 4] == b"PK\1\2"]
    data[central[0] + 8] |= 1
    data[central[1] + 10] = 9
    data[central[2] + 16] ^= 0xFF  # its CRC
    (tmp_path / "a.zip").write_bytes(data)
    found = opened(tmp_path / "a.zip")
    assert {n[7:]: r for n, (_, r) in found.items()} == {
        "": None, "secret.log": "encrypted", "odd.log": "compression method 9 is not known", "bad.log": "damaged", "good.log": None,
    } | {"": "archive"}  # fmt: skip
    assert len(local) == 4 and found["a.zip!/bad.log"][0] == TRACE * 9
    report = rca.analyze(tmp_path / "a.zip")
    assert report.incomplete and dict(report.skipped)["a.zip!/secret.log"] == "encrypted"


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_cut_archive_gives_what_it_has(tmp_path: Path, kind: str, part: float) -> None:
    """The writer was killed: whole members are whole, the last one is cut, and the report is incomplete."""
    whole = PACK[kind](tar([(f"{i}.log", os.urandom(4000).hex().encode() + b"\n" + TRACE) for i in range(20)]))
    (tmp_path / "a").write_bytes(whole[: int(len(whole) * part)])
    found = opened(tmp_path / "a")
    good = [n for n, (c, r) in found.items() if r is None and c.endswith(TRACE)]
    if kind not in ("tar.bz2", "tar.zst"):  # a block of which holds all of it
        assert len(good) >= 20 * part - 4
    assert any(r for n, (_, r) in found.items() if r != "archive")
    assert rca.analyze(tmp_path / "a").incomplete


def test_damage_in_the_middle_of_a_tar_file(tmp_path: Path) -> None:
    """Reading goes on at the next header."""
    data = bytearray(tar([(f"{i}.log", b"line\n") for i in range(9)]))
    data[3 * 1024 : 3 * 1024 + 512] = b"\xaa" * 512
    (tmp_path / "a").write_bytes(data)
    found = opened(tmp_path / "a")
    assert found["a"][1] == "damaged" and len([1 for c, _ in found.values() if c == b"line\n"]) == 8


def test_models_and_programs_are_no_archives(tmp_path: Path) -> None:
    """A PyTorch file is a zip file, and so is a wheel; neither is opened."""
    (tmp_path / "model.zip").write_bytes(zipped([("archive/data.pkl", b"\x80\2"), ("archive/data/0", b"0")]))
    (tmp_path / "step7.pt").write_bytes(zipped([("a.txt", b"x\n")]))
    (tmp_path / "junk.zip").write_bytes(b"PK\3\4" + bytes(50))
    assert {n: r for n, (_, r) in opened(tmp_path).items()} == {"model.zip": "binary", "step7.pt": "binary", "junk.zip": "damaged"}


def test_a_binary_member_is_not_held(tmp_path: Path) -> None:
    """Weights in a bundle cost the memory of their first page."""
    (tmp_path / "a.tgz").write_bytes(PACK["tgz"](tar([("w.safetensors", os.urandom(1 << 20)), ("a.log", b"x\n")])))
    sources = {s.name: s for s in expand(list_sources([tmp_path]))}
    assert sources["a.tgz!/w.safetensors"].reason == "binary"
    assert sources["a.tgz!/a.log"].inside.held.size == 2


def test_bombs_are_bounded(tmp_path: Path, monkeypatch) -> None:
    """Too many members, too much content, members that share their bytes: a reason, and the rest."""
    monkeypatch.setattr(unpack, "MEMBERS_MAX", 5)
    for kind, data in (("tar", tar([(f"{i}", b"x\n") for i in range(9)])), ("zip", zipped([(f"{i}", b"x\n") for i in range(9)]))):
        (tmp_path / f"a.{kind}").write_bytes(data)
        found = opened(tmp_path / f"a.{kind}")
        assert found[f"a.{kind}"][1] == "too many members" and len(found) == 6
    data = bytearray(zipped([("a.log", b"x" * 1000), ("b.log", b"y" * 1000)]))
    central = [i for i in range(len(data)) if data[i : i + 4] == b"PK\1\2"]
    data[central[1] + 42 : central[1] + 46] = data[central[0] + 42 : central[0] + 46]
    (tmp_path / "c.zip").write_bytes(data)
    assert "overlaps another member" in {r for _, r in opened(tmp_path / "c.zip").values()}


def test_a_bomb_takes_little_memory(tmp_path: Path) -> None:
    """Five gigabytes of zeros or letters in five megabytes, in an archive in an archive."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as file:
        head = tarfile.TarInfo("boom.log")
        head.size = 3 << 30
        file.write(head.tobuf())
        line = b"A" * (1 << 20)
        for _ in range(1 << 10):
            file.write(line)
    (tmp_path / "a.zip").write_bytes(zipped([("b.tar.gz", out.getvalue())]))
    code = "import sys, rca; r = rca.analyze(sys.argv[1], workers=1); print(r.skipped)"
    limit = 1 << 30
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ratio limit" in done.stdout


def test_what_does_not_fit_into_memory_is_said(tmp_path: Path, monkeypatch) -> None:
    """Members are held up to a bound; those beyond have a reason."""
    from rca.ingest.archives import held

    for shared in (True, False):
        monkeypatch.setattr(held, "HELD_MAX", 300_000)
        monkeypatch.setattr(held.Store.__init__, "__defaults__", (300_000,))
        if not shared:
            monkeypatch.delattr(os, "memfd_create", raising=False)
        (tmp_path / "a.tgz").write_bytes(PACK["tgz"](tar([(f"{i}.log", os.urandom(100_000).hex().encode() + b"\n") for i in range(9)])))
        reasons = [r for n, (_, r) in opened(tmp_path / "a.tgz").items() if n != "a.tgz"]
        assert set(reasons) == {None, "too large to hold"} and rca.analyze(tmp_path / "a.tgz").incomplete


@settings(max_examples=int(os.environ.get("RCA_FUZZ", 60)), deadline=None)
@given(st.data())
def test_no_damage_brings_it_down(tmp_path_factory, data) -> None:
    """Any bytes changed or cut off, in any kind of archive: no exception, and every byte counted once."""
    kind = data.draw(st.sampled_from([*PACK, "zip", "stored"]))
    members = [("logs/a.log", TRACE * 3), ("b.tgz", PACK["tgz"](tar([("c.log", b"c\n" * 50)]))), ("d.zip", zipped([("e", b"e\n" * 50)]))]
    raw = bytearray(zipped(members, zipfile.ZIP_STORED) if kind == "stored" else zipped(members) if kind == "zip" else PACK[kind](tar(members)))
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, 1 << 20)) % len(raw)] = data.draw(st.integers(0, 255))
    del raw[1 + data.draw(st.integers(0, 1 << 20)) % len(raw) :]
    path = tmp_path_factory.mktemp("damage") / "a.zip"
    path.write_bytes(raw)
    readings, _ = ingest([path], workers=1)
    assert sum(r.size for r in readings) == len(raw)
    assert all(r.parsed + r.plain + r.skipped == r.size and min(r.parsed, r.plain, r.skipped) >= 0 for r in readings)
    assert len({r.source for r in readings}) == len(readings)


def test_a_large_member_is_read_in_parts_like_a_file(tmp_path: Path) -> None:
    """Positions are those of the member, whatever its share of the archive is."""
    from rca.ingest.spans.documents import lines

    text = b"".join(b'{"n": %d}\n' % i for i in range(20_000))
    (tmp_path / "a.tgz").write_bytes(PACK["tgz"](tar([("t.jsonl", text)])))
    (source,) = [s for s in expand(list_sources([tmp_path])) if s.inside]
    assert source.size < source.extent // 4
    cut = source.extent // 2
    parts = [*lines(source, 0, cut), *lines(source, cut, source.extent)]
    assert [line for _, line in parts] == text.splitlines() and parts == list(lines(source))


def test_cut_traces_are_said_to_be_cut(tmp_path: Path) -> None:
    """The writer of a packed file of spans was killed: what is there is read, and exit code 3 says the rest."""
    span = '{"resourceSpans":[{"resource":{},"scopeSpans":[{"spans":[{"traceId":"%032x","spanId":"%016x","name":"x","startTimeUnixNano":"1795176000000000000"}]}]}]}\n'
    whole = gzip.compress("".join(span % (i, i) for i in range(1, 400)).encode(), mtime=0)
    (tmp_path / "t.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    assert rca.analyze(tmp_path).skipped == (("t.jsonl.gz", "truncated"),)
    (tmp_path / "t.jsonl.gz").write_bytes(whole)
    assert not rca.analyze(tmp_path).incomplete
