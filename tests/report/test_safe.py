"""What reaches a reader only shows; secrets do not reach him."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rca.report.safe import redact, safe_lines, safe_text
from tests.report.hostile import FORBIDDEN, assert_harmless, strings

LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6lM9o"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVPmB92K27uhbUJU1p1r"
#: kind of secret -> (text around it, with {} for the secret; the secret)
CANARIES = {
    "hf": ("{}", "hf_" + LETTERS[:34]),
    "openai": ("{}", "sk-proj-" + LETTERS),
    "anthropic": ("{}", "sk-ant-api03-" + LETTERS),
    "aws id": ("{}", "AKIAIOSFODNN7EXAMPLE"),
    "aws secret": ("AWS_SECRET_ACCESS_KEY={}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    "github": ("{}", "ghp_" + LETTERS[:36]),
    "github app": ("{}", "github_pat_" + LETTERS),
    "gitlab": ("{}", "glpat-" + LETTERS[:20]),
    "slack": ("{}", "xoxb-123456789012-" + LETTERS[:20]),
    "google": ("{}", "AIza" + LETTERS[:35]),
    "stripe": ("{}", "sk_live_" + LETTERS[:24]),
    "npm": ("{}", "npm_" + LETTERS[:36]),
    "jwt": ("{}", JWT),
    "bearer": ("Authorization: Bearer {}", LETTERS),
    "url": ("https://bob:{}@git.example.com/x", "hunter2-hunter2"),
    "password": ("DB_PASSWORD={}", "correct-horse7"),
    "python dict": ("{{'api_key': '{}'}}", "0123456789abcdef"),
    "json": ('{{"client_secret": "{}"}}', "s3cr3ts3cr3t"),
    "json in json": ('{{\\"hf_token\\": \\"{}\\"}}', "abcdef0123"),
    "option": ("--wandb-api-key {}", "0123456789abcdef0123456789abcdef01234567"),
    "yaml": ("password: {}", "letme1n"),
    "query": ("/login?token={}&step=3", LETTERS[:20]),
    "env": ("export WANDB_TOKEN={}", "tralala"),
    "azure": ("AccountKey={};Endpoint=x", LETTERS + "=="),
    "key file": ("-----BEGIN RSA PRIVATE KEY-----{}", "MIIEowIBAAKCAQEA" + LETTERS),
}
CONTEXTS = (
    "{}",
    "2026-11-20 12:00:00,120 ERROR [rank3] {}",
    "env: HOME=/srv {} SHELL=/bin/sh",
    "\t{} ",
    "x" * 200 + " {}",
    "RuntimeError: call failed ({})",
    "{}\\n",
)
ORDINARY = (
    "num_tokens=4096 max_tokens: 512 tokens/s=1834.2",
    "pad_token='<pad>' eos_token=</s> bos_token_id=1 tokenizer=Qwen2Tokenizer",
    "SyntaxError: Unexpected token: '<' in JSON",
    "the password is wrong",
    "Wrong password: try again",
    "PWD=/srv/work OLDPWD=/srv",
    "secrets: None, api_key=None, token=null",
    "mlx5_0:1@gn0028 rank:3@node-7 user@host:/path",
    "tcp://10.0.0.1:29500 s3://bucket/key=value/part-0",
    "mount /var/run/secrets: password file=/etc/passwd",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b key=layers.0.weight",
    "docker run -u 1000:1000 -u root image",
    "task-0123456789abcdef0123 disk-0123456789abcdef0123 risk-free",
    "KeyError: 'model.layers.0' in state_dict; missing key(s): lm_head.weight",
)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\ttext ünïcode 表", "plain\ttext ünïcode 表"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\r\nb\x7f\x9b", "a\\x0d\\x0ab\\x7f\\x9b"),
        ("a\u202eb\u2066\u2028", "a\\u202eb\\u2066\\u2028"),
        ("\udc80 \U000e0041", "\\udc80 \\U000e0041"),
        ("x ##vso[a] ##[error]y ## z", "x \\x23#vso[a] \\x23#[error]y ## z"),
    ],
)
def test_unsafe_characters_are_written_out(raw, shown):
    """A character that would act on a terminal or a CI runner is shown as its code."""
    assert safe_text(raw) == shown


@given(strings)
def test_safe_text_is_one_harmless_line(raw):
    """Whatever comes in, one line comes out that acts on nothing; made safe twice, it is the same."""
    shown = safe_text(raw)
    assert not FORBIDDEN.search(shown)
    assert safe_text(shown) == shown


@given(st.lists(strings).map("\n".join))
def test_no_line_starts_with_a_ci_command(raw):
    """Wrapping may put `::error` at the start of a line; it is defused there."""
    lines = "\n".join(safe_text(line) for line in raw.split("\n"))
    assert_harmless(safe_lines(lines))


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", CANARIES)
def test_planted_secrets_are_gone(kind, context):
    """No planted secret survives, wherever in a line it stands."""
    around, secret = CANARIES[kind]
    line = context.format(around.format(secret))
    assert secret not in redact(line)
    assert "⟨redacted:" in redact(line)


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_lines_stay(line):
    """Settings of tokenizers, paths, hashes and prose are no secrets."""
    assert redact(line) == line


def test_equal_secrets_have_equal_placeholders():
    """A reader can still tell whether two processes used the same key; a secret found once is hidden where it stands bare."""
    known: dict[str, str] = {}
    first, other = "hf_" + LETTERS[:30], "hf_" + LETTERS[5:35]
    assert redact(f"HF_TOKEN={first}", known) == "HF_TOKEN=⟨redacted:hf_token#1⟩"
    assert redact(f"rank 1 uses {other}, rank 2 {first}", known) == "rank 1 uses ⟨redacted:hf_token#2⟩, rank 2 ⟨redacted:hf_token#1⟩"
    assert redact("password=tr0ub4dor", known) == "password=⟨redacted:password#3⟩"
    assert redact("login of tr0ub4dor", known) == "login of ⟨redacted:password#3⟩"


@given(strings)
def test_redacting_twice_changes_nothing(raw):
    """A placeholder is never taken for a secret."""
    known: dict[str, str] = {}
    once = redact(raw, known)
    assert redact(once, known) == once


@pytest.mark.parametrize(
    "line", ["sk-" * 1400, "secret" * 700, "token=" * 700, "eyJ" * 1400, "://" * 1400, "authorization: " * 280, "-----BEGIN PRIVATE KEY-----" * 150]
)
def test_no_line_takes_long(line):
    """A line built against the patterns costs no more than any other."""
    start = time.process_time()
    redact(line)
    assert time.process_time() - start < 0.5
