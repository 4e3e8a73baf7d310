"""Listing: every file once, named as reported, skipped only with a reason."""

import gzip
import os
import socket
import zipfile

import pytest

from rca.errors import RcaError
from rca.ingest.sources import Source, content, list_sources, read_all, read_range


def put(path, data=b"text\n"):
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def listed(*paths):
    """`{name: (size, compression, reason)}`."""
    return {s.name: tuple(s[2:5]) for s in list_sources(paths)}


def test_folder_is_listed_by_relative_name(tmp_path):
    """Files of a folder are named relative to it and sorted by name, whatever order the disk gives."""
    for name in ("b/2.log", "a.log", "b/10.log", "c/d/e.log"):
        put(tmp_path / name)
    assert [s.name for s in list_sources([tmp_path])] == ["a.log", "b/10.log", "b/2.log", "c/d/e.log"]


def test_single_file_is_named_by_its_base_name(tmp_path):
    """A given file is reported relative to its parent."""
    assert listed(put(tmp_path / "x" / "a.log")) == {"a.log": (5, None, None)}


def test_several_paths_are_named_from_their_common_parent(tmp_path):
    """Several paths are reported relative to the folder that holds them all, and a file given twice is listed once."""
    a, b = put(tmp_path / "x" / "a.log"), put(tmp_path / "y" / "z" / "b.log")
    assert list(listed(a, b.parent.parent)) == ["x/a.log", "y/z/b.log"]
    assert list(listed(a, a.parent, a)) == ["a.log"]
    assert list(listed(a.parent, a.parent)) == ["a.log"]


def test_order_of_paths_does_not_matter(tmp_path):
    """The same paths in another order give the same list."""
    paths = [put(tmp_path / n / "a.log") for n in "abc"] + [tmp_path]
    assert list_sources(paths) == list_sources(paths[::-1])


def test_missing_path_is_the_users_error(tmp_path):
    """A path that does not exist raises with the path and a hint."""
    with pytest.raises(RcaError, match="no such file or folder") as caught:
        list_sources([tmp_path / "nowhere"])
    assert caught.value.hint and caught.value.exit_code == 2


def test_empty_folder_and_empty_file(tmp_path):
    """An empty folder lists nothing; an empty file is listed and read as nothing."""
    assert list_sources([tmp_path]) == []
    put(tmp_path / "empty.log", b"")
    assert listed(tmp_path) == {"empty.log": (0, None, None)}
    assert read_all(list_sources([tmp_path])[0], 10) == (b"", None)


def test_special_files_are_skipped_without_blocking(tmp_path):
    """A FIFO and a socket get a reason and are never opened for reading."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert listed(tmp_path) == dict.fromkeys(("pipe", "socket"), (0, None, "not a regular file"))
    assert listed(tmp_path / "pipe") == {"pipe": (0, None, "not a regular file")}


def test_fifo_that_takes_the_place_of_a_file_does_not_block(tmp_path):
    """A file replaced by a FIFO after listing is neither waited for nor read."""
    path = put(tmp_path / "a.log")
    source = list_sources([path])[0]
    path.unlink()
    os.mkfifo(path)
    assert read_range(source, 0, 10) == b""
    assert read_all(source, 10) == (b"", "unreadable: not a regular file")


def test_links_are_followed_only_inside(tmp_path):
    """A link out of the folder, to a device, in a loop or to nowhere has a reason; one that stays inside adds nothing."""
    root = tmp_path / "root"
    put(root / "sub" / "a.log")
    put(tmp_path / "secret")
    for name, target in {
        "out": tmp_path / "secret", "device": "/dev/null", "self": root / "self", "up": root, "sub/dot": ".",
        "nowhere": root / "gone", "inside": root / "sub" / "a.log", "folder": root / "sub",
    }.items():  # fmt: skip
        (root / name).symlink_to(target)
    assert listed(root) == {
        "device": (0, None, "link out of the given folder"),
        "nowhere": (0, None, "broken link"),
        "out": (0, None, "link out of the given folder"),
        "self": (0, None, "link loop"),
        "sub/a.log": (5, None, None),
        "sub/dot": (0, None, "link loop"),
        "up": (0, None, "link loop"),
    }


def test_link_given_by_the_user_is_followed(tmp_path):
    """A link that the user names leads anywhere, and keeps the name that the user gave."""
    put(tmp_path / "real" / "a.log")
    (tmp_path / "latest").symlink_to(tmp_path / "real")
    (tmp_path / "one.log").symlink_to(tmp_path / "real" / "a.log")
    assert list(listed(tmp_path / "latest")) == ["a.log"]
    assert listed(tmp_path / "one.log") == {"one.log": (5, None, None)}
    assert read_range(list_sources([tmp_path / "one.log"])[0], 0, 9) == b"text\n"


def test_hard_links_are_read_once(tmp_path):
    """Of two names of one file the first is read and the second says so, with its size."""
    put(tmp_path / "b.log")
    os.link(tmp_path / "b.log", tmp_path / "a.log")
    assert listed(tmp_path) == {"a.log": (5, None, None), "b.log": (5, None, "same file as a.log")}


def test_unreadable_file_and_folder_have_a_reason(tmp_path, monkeypatch):
    """What may not be opened is listed with its size and the system's words."""
    path, folder = put(tmp_path / "a.log"), tmp_path / "closed"
    folder.mkdir()
    real_open, real_scandir = os.open, os.scandir

    def refuse(real, refused):
        def call(name, *rest):
            if str(name) == str(refused):
                raise PermissionError(13, "Permission denied")
            return real(name, *rest)

        return call

    monkeypatch.setattr(os, "open", refuse(real_open, path))  # tests may run as root, whom no mode keeps out
    monkeypatch.setattr(os, "scandir", refuse(real_scandir, folder))
    assert listed(tmp_path) == {
        "a.log": (5, None, "unreadable: permission denied"),
        "closed": (0, None, "unreadable: permission denied"),
    }


def test_names_that_are_no_text_are_escaped(tmp_path):
    """A file name that is no UTF-8 can be opened by its path and printed by its name."""
    put(tmp_path / os.fsdecode(b"rank\xff.log"))
    put(tmp_path / "ränk.log")
    sources = list_sources([tmp_path])
    assert [s.name for s in sources] == ["rank\\xff.log", "ränk.log"]
    assert read_range(sources[0], 0, 4) == b"text"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", None),
        (b"step 1\rstep 2\x1b[31m\n", None),
        (b"caf\xe9 \xff\xfe\n" * 9, None),
        (b"line\n" * 40 + b"\0", None),  # a stray NUL
        (b"line\n" * 40 + bytes(512), None),  # what a crash leaves in a text file
        (bytes(64), "binary"),
        (bytes(range(256)) * 4, "binary"),
        (b"\x80\x04\x95\x10}\x94", "binary"),
        (b"PK\x03\x04data", "binary"),
        (b"\x40\0\0\0\0\0\0\0{" + b'"a":1' * 50, "binary"),
        (b"x" * 257 + b"ustar\0" + bytes(200), "archive"),
        ("läuft\n".encode("utf-16") * 4, "utf16"),
        ("step 1\n".encode("utf-16-be") * 4, "utf16"),
    ],
)
def test_content_is_told_by_bytes(head, kind):
    """Text stays text with stray control bytes; packed data, pickles, tensors and tar are told apart by content."""
    assert content(head) == kind


def test_compression_is_told_by_content_not_by_name(tmp_path):
    """A gzip file needs no suffix, and a suffix makes no gzip file."""
    put(tmp_path / "a.log", gzip.compress(b"hello\n"))
    put(tmp_path / "b.gz", b"hello\n")
    put(tmp_path / "c.gz", gzip.compress(b"\x80\x04\x95\x10}\x94"))
    put(tmp_path / "d.gz", gzip.compress(bytes(257) + b"ustar\0" + bytes(300)))
    with zipfile.ZipFile(tmp_path / "e.pt", "w") as archive:
        archive.writestr("data.pkl", b"x")
    found = {s.name: (s.compression, s.reason) for s in list_sources([tmp_path])}
    assert found == {
        "a.log": ("gz", None), "b.gz": (None, None), "c.gz": ("gz", "binary"), "d.gz": ("gz", "archive"), "e.pt": (None, "binary"),
    }  # fmt: skip


def test_all_hole_file_is_sparse(tmp_path):
    """A terabyte of nothing is listed at once, and skipped."""
    with open(tmp_path / "hole.log", "wb") as file:
        file.truncate(1 << 40)
    assert listed(tmp_path) == {"hole.log": (1 << 40, None, "sparse")}


def test_zeros_before_text_do_not_hide_it(tmp_path):
    """A log that begins with zeros, as copytruncate rotation leaves it, is text."""
    put(tmp_path / "a.log", bytes(50_000) + b"RuntimeError: late\n" * 300)
    assert listed(tmp_path)["a.log"][2] is None


def test_sizes_add_up(tmp_path):
    """The sizes of all sources add up to what lies on disk."""
    for i in range(20):
        put(tmp_path / f"d{i % 3}" / f"{i}.log", os.urandom(i * 10) + b"text\n" * i)
    total = sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
    assert sum(s.size for s in list_sources([tmp_path])) == total


def test_read_all_says_when_it_stops(tmp_path):
    """A limit cuts, and says so; a skipped source gives its reason."""
    source = list_sources([put(tmp_path / "a.log", b"0123456789")])[0]
    assert read_all(source, 10) == (b"0123456789", None)
    assert read_all(source, 4) == (b"0123", "cut at the limit")
    assert read_all(source._replace(reason="binary"), 4) == (b"", "binary")


def test_growing_file_is_read_to_its_size_at_the_start(tmp_path):
    """What is written after listing belongs to the next analysis."""
    path = put(tmp_path / "a.log", b"first\n")
    source = list_sources([path])[0]
    path.write_bytes(b"first\nsecond\n")
    assert read_all(source, 100) == (b"first\n", None)
    assert read_range(source, 0, 100) == b"first\n"
    assert read_range(source, 3, 2) == b"st"
    assert read_range(source, 100, 2) == b""


def test_source_is_plain_data(tmp_path):
    """A source is a tuple that travels between processes as it is."""
    source = list_sources([put(tmp_path / "a.log")])[0]
    assert Source(*tuple(source)) == source


def test_a_recording_of_requests_is_no_log(tmp_path):
    """What a trainer keeps to run its requests again is named once, not file by file; a folder `blobs` elsewhere is read."""
    blob = put(tmp_path / "recording" / "blobs" / "train-0" / "1.safetensors")
    (tmp_path / "recording" / "blobs" / "rollout-0").mkdir()
    os.link(blob, tmp_path / "recording" / "blobs" / "rollout-0" / "1.safetensors")
    put(tmp_path / "recording" / "train-0.requests.jsonl", b"{}\n")
    put(tmp_path / "recording" / "config.json", b"{}\n")
    put(tmp_path / "logs" / "blobs" / "a.log")
    said = "recording of requests"
    assert {name: reason for name, (_, _, reason) in listed(tmp_path).items()} == {
        "logs/blobs/a.log": None, "recording/blobs": said, "recording/config.json": None, "recording/train-0.requests.jsonl": said,
    }  # fmt: skip
