"""Decoding: whatever could be read is delivered, bounded, with a word on what was wrong."""

import gzip
import io
import lzma
import os
import sys
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rca.ingest import streams
from rca.ingest.sources import list_sources, read_all, read_range

zstandard = pytest.importorskip("zstandard")
TEXT = b"".join(b"step %d loss 2.%06d\n" % (i, i * 7919 % 1000003) for i in range(40_000))
PACK = {"gz": lambda b: gzip.compress(b, 1), "xz": lambda b: lzma.compress(b, preset=0), "zst": zstandard.ZstdCompressor().compress}


def source_of(path, data):
    """The listed source of a file with these bytes."""
    path.write_bytes(data)
    return list_sources([path])[0]


@pytest.mark.parametrize("kind", PACK)
def test_whole_file_is_decoded(tmp_path, kind):
    """A whole compressed file gives its text, also in several members, and nothing to complain about."""
    source = source_of(tmp_path / "a", PACK[kind](TEXT[:1000]) + PACK[kind](TEXT[1000:]))
    assert source.compression == kind
    assert read_all(source, 1 << 30) == (TEXT, None)
    assert streams.window(source).consumed == source.size


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("part", [0.3, 0.9, 0.9999])
def test_truncated_file_keeps_what_was_read(tmp_path, kind, part):
    """A file whose writer was killed gives all that can be decoded, and says that it is truncated."""
    packed = PACK[kind](TEXT)
    data, flag = read_all(source_of(tmp_path / "a", packed[: int(len(packed) * part)]), 1 << 30)
    assert flag == "truncated"
    assert TEXT.startswith(data)
    assert len(data) >= (part - 0.25) * len(TEXT)  # a zstd or xz block is lost whole


@pytest.mark.parametrize("kind", PACK)
def test_damaged_file_keeps_what_was_read(tmp_path, kind):
    """Garbage behind a whole member leaves the member readable."""
    source = source_of(tmp_path / "a", PACK[kind](TEXT) + b"garbage that is no member" * 9)
    data, flag = read_all(source, 1 << 30)
    assert (data, flag) == (TEXT, "damaged")
    assert streams.window(source).consumed <= source.size


def test_gzip_works_without_isal(tmp_path, monkeypatch):
    """The standard library decodes gzip where isal is missing, with the same answers."""
    packed = gzip.compress(TEXT, 1)
    monkeypatch.setitem(sys.modules, "isal", None)
    assert read_all(source_of(tmp_path / "a", packed + packed), 1 << 30) == (TEXT * 2, None)
    data, flag = read_all(source_of(tmp_path / "b", packed[: len(packed) // 2]), 1 << 30)
    assert data == zlib.decompressobj(31).decompress(packed[: len(packed) // 2])
    assert flag == "truncated"


def test_zstd_without_the_package_has_a_reason(tmp_path, monkeypatch):
    """Where zstandard is missing, a zstd file is skipped and says what it needs."""
    from rca.ingest import sources

    sources.needs.cache_clear()
    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    assert source_of(tmp_path / "a", PACK["zst"](TEXT)).reason == "needs zstandard"
    sources.needs.cache_clear()


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_bomb_is_stopped(tmp_path, kind):
    """Data that unpacks 1000-fold ends at the ratio limit, in bounded memory, with the rest counted as skipped."""
    out = io.BytesIO()
    if kind == "gz":
        with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6) as file:
            for _ in range(80):
                file.write(b"\n" * (1 << 20))
    else:
        with zstandard.ZstdCompressor().stream_writer(out, closefd=False) as file:
            for _ in range(400):
                file.write(b"\n" * (1 << 20))
    source = source_of(tmp_path / "a", out.getvalue())
    stream = streams.open_stream(source)
    view, total = memoryview(bytearray(1 << 18)), 0
    while count := stream.readinto(view):
        total += count
    assert stream.truncated == "ratio limit"
    assert total < streams.RATIO_FROM_BYTES + (1 << 20)
    assert streams.window(source)._kept_bytes <= streams.WINDOW_BYTES


def test_zstd_window_is_bounded(tmp_path):
    """A frame that asks for a larger window than allowed is refused, not allocated."""
    parameters = zstandard.ZstdCompressionParameters(window_log=28, compression_level=1)
    out = io.BytesIO()
    with zstandard.ZstdCompressor(compression_params=parameters).stream_writer(out, closefd=False) as file:
        file.write(TEXT)
    assert read_all(source_of(tmp_path / "a", out.getvalue()), 1 << 20) == (b"", "damaged")


def test_excerpts_of_compressed_files_come_from_memory(tmp_path):
    """Reading a small compressed file again, in any order, decodes nothing again."""
    source = source_of(tmp_path / "a", PACK["gz"](TEXT))
    read_all(source, 1 << 30)
    os.unlink(source.path)
    for offset in (500_000, 10, 900_000 % len(TEXT), 0):
        assert read_range(source, offset, 1000) == TEXT[offset : offset + 1000]


def test_excerpt_before_the_window_is_decoded_anew(tmp_path, monkeypatch):
    """What has left the kept window is decoded from the start again."""
    monkeypatch.setattr(streams, "WINDOW_BYTES", 100_000)
    source = source_of(tmp_path / "a", PACK["zst"](TEXT))
    for offset in (len(TEXT) - 500, 10, 400_000, 0, 399_000):
        assert read_range(source, offset, 1000) == TEXT[offset : offset + 1000]


@given(st.text(st.characters(blacklist_categories=["Cs"])), st.sampled_from(["utf-16-le", "utf-16-be"]))
@settings(max_examples=100, deadline=None)
def test_utf16_becomes_utf8(tmp_path_factory, text, encoding):
    """UTF-16 with a byte order mark reads as the same text in UTF-8, with the same lines."""
    path = tmp_path_factory.mktemp("utf16") / "a"
    source = source_of(path, ("\ufeff" + text).encode(encoding))
    if source.reason is None:
        assert source.compression == "utf16"
        assert read_all(source, 1 << 20) == (text.encode(), None)


def test_utf16_without_mark_and_cut_in_a_character(tmp_path):
    """UTF-16 is recognised by its NULs, and half a character at the end is replaced and reported."""
    source = source_of(tmp_path / "a", "Fatal: läuft nicht\n".encode("utf-16-le") * 2000 + b"x")
    data, flag = read_all(source, 1 << 20)
    assert (data, flag) == ("Fatal: läuft nicht\n".encode() * 2000 + "\ufffd".encode(), "truncated")


def test_holes_are_jumped_over(tmp_path):
    """A terabyte with two lines in it is read at once; the hole counts as skipped."""
    path = tmp_path / "a"
    with open(path, "wb") as file:
        file.write(b"first\n")
        file.seek(1 << 39)
        file.write(b"last\n")
        file.truncate(1 << 40)
    source = list_sources([path])[0]
    stream = streams.open_stream(source)
    view, text = memoryview(bytearray(1 << 16)), b""
    while count := stream.readinto(view):
        text += bytes(view[:count]).strip(b"\0")
    stream.close()
    assert text == b"first\nlast\n"
    assert (stream.truncated, stream.position) == ("sparse", 1 << 40)
    assert 0 < stream.consumed < 1 << 24


def test_file_cut_while_read_ends_there(tmp_path):
    """A file that shrinks after listing gives what is left and says so."""
    path = tmp_path / "a"
    source = source_of(path, TEXT)
    os.truncate(path, 1000)
    assert read_all(source, 1 << 30) == (TEXT[:1000], "shrank while it was read")


def test_file_that_vanished_is_unreadable(tmp_path):
    """A file deleted after listing, plain or compressed, is no error."""
    for name, data in (("a", TEXT), ("b", PACK["gz"](TEXT))):
        source = source_of(tmp_path / name, data)
        streams._windows.clear()
        os.unlink(source.path)
        assert read_all(source, 100) == (b"", "unreadable: no such file or directory")


@given(st.sampled_from(sorted(PACK)), st.integers(0, 400), st.binary(max_size=40))
@settings(max_examples=200, deadline=None)
def test_hostile_bytes_never_raise(tmp_path_factory, kind, cut, noise):
    """Any bytes in the middle of a compressed file end in a flag or in data, never in an exception."""
    packed = PACK[kind](b"some text to decode\n" * 20)
    path = tmp_path_factory.mktemp("fuzz") / "a"
    source = source_of(path, packed[:cut] + noise + packed[cut + len(noise) :])
    data, _ = read_all(source, 1 << 20)
    assert len(data) <= 1 << 20
    assert streams.window(source).consumed <= source.size if source.compression else True
