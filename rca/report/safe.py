"""Make strings fit to show: no character that acts on a terminal or a CI runner, no secret.

Logs are written by strangers and may be read in CI with secrets in the environment. `redact` is applied once, where the
document is built, so every format inherits it; `safe_text` is applied by every sink that is not JSON.

Sources: CWE-150 and GHSA-34r5-6j7w-235f (escape sequences), CVE-2021-42574 (bidi controls);
GitHub runner `ActionCommand.cs` (`::` after leading blanks, `##[` anywhere in a line), Azure agent `Command.cs` (`##vso[` anywhere).
"""

from __future__ import annotations

import re

#: C0 except tab, DEL, C1; bidi controls and marks; line separators; deprecated format, annotation and tag characters, which are invisible; lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]")
#: What Azure, GitHub and TeamCity take for a command wherever it stands in a line.
CI_ANYWHERE = re.compile(r"#(?=#(?:vso|teamcity)?\[)", re.IGNORECASE)
_CI_LINE_START = re.compile(r"^(\s*):(?=:)", re.MULTILINE)


def safe_text(text: str) -> str:
    r"""One line that only shows, never acts: what is unsafe is written out as `\x1b` or `\u202e`.

    >>> safe_text("\x1b[2J gone\r")
    '\\x1b[2J gone\\x0d'
    """
    return CI_ANYWHERE.sub(r"\\x23", _UNSAFE.sub(_escape, text))


def safe_lines(text: str) -> str:
    """A whole rendered text in which no line starts with a CI command (`::error`), wherever wrapping put it."""
    return _CI_LINE_START.sub(r"\1\\x3a", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# --- secrets ---------------------------------------------------------------------------------------------------------

_EDGE = r"(?<![A-Za-z0-9])"
#: Tokens that show what they are by their own form: (name in the placeholder, pattern). Group 1, where there is one, is the secret.
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("private_key", r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"),
        ("hf_token", _EDGE + r"(?:hf_|api_org_)[A-Za-z0-9]{20,}"),
        ("api_key", _EDGE + r"sk-(?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{16,}"),
        ("api_key", _EDGE + r"(?:[sr]k_(?:live|test)_|npm_|dckr_pat_|nvapi-|glpat-|pypi-|wandb_v1_)[A-Za-z0-9_-]{16,}"),
        ("api_key", _EDGE + r"(?:AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,})"),
        ("aws_key", _EDGE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])"),
        ("github_token", _EDGE + r"(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}"),
        ("slack_token", _EDGE + r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),
        ("slack_hook", r"(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}"),
        ("jwt", _EDGE + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
        ("password", r"://[^\s/:@\"'⟨]{0,128}:([^\s/@\"'⟨]{1,256})(?=@)"),
        ("password", r"(?<=\s)(?:-u|--user)[ =]?[\w.+-]{1,64}:(?![0-9]+(?:\s|$))([^\s@\"'⟨]{4,})"),
        ("authorization", r"(?i:\bauthorization\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?(?:bearer|basic|token|digest)?\s{0,3})([^\s\"'\\,⟨]{8,})"),
        ("authorization", r"(?i:\b(?:bearer|basic))\s{1,3}((?=[^\s]*[0-9])[A-Za-z0-9._~+/=-]{16,})"),
        ("signature", r"(?i:[?&](?:sig|x-amz-signature)=)([A-Za-z0-9%+/=_-]{16,})"),
        ("cookie", r"(?i:\b(?:set-)?cookie\\?[\"']?:\s{0,3}\\?[\"']?)([^\s\"';,\\⟨][^\"'\\⟨]{3,})"),
    )
)

#: A setting whose name says that its value is secret. The left part of the name is looked up afterwards, so that the search stays linear.
_ASSIGNED = re.compile(
    r"(?P<word>secret|token|passw(?:or)?d|passwd|passphrase|pwd|(?:api|access|private|account)[_-]?key)(?P<tail>[A-Za-z0-9_-]{0,40})"
    r"(?P<sep>\\?[\"']?\s{0,3}(?:=>|[=:])\s{0,3}|\s)"
    r"(?:[bru]?(?P<quote>\\?[\"'])(?P<quoted>[^\"'\\]+)|(?P<bare>[^\s\"'\\⟨][^\s\"'\\]*))",
    re.IGNORECASE,
)
_NAME_END = re.compile(r"[A-Za-z0-9_.-]{0,64}\Z")
_NOTHING = re.compile(
    r"(?i:none|null|nil|true|false|unset|set|yes|no|not|is|\*+|x+|<.*|\.{2,}|\$.*|%.*|\{.*|\[.*|/(?:var|run|etc|home|mnt|root|tmp|usr|opt|data)/.*)\Z"
)
_NAME_TAIL = re.compile(r"(?:_?[0-9]{1,2}|_value)?", re.IGNORECASE)
_STOP_LOWER = re.compile(r"[,;&)}\]>]")
#: Names of a tokenizer's words, which are not secrets: `pad_token='<pad>'`, `max_token=512`.
_WORDS_OF_TEXT = frozenset((
    "pad", "eos", "bos", "unk", "sep", "cls", "mask", "stop", "special", "image", "video", "audio", "vision", "media", "next", "last", "first", "max",
    "min", "num", "per", "new", "end", "start", "ignore", "think", "prompt", "input", "output", "tool", "boi", "eoi", "final", "total", "avg", "mean",
    "sec", "unexpected", "expected", "invalid", "missing", "bad", "current", "previous", "begin", "single", "each",
))  # fmt: skip

#: What a line must hold to be worth the patterns above; tested on the lower-case line.
_ANCHORS = (
    "secret", "token", "passw", "passphrase", "pwd", "key", "hf_", "api_org_", "sk-", "k_live_", "k_test_", "npm_", "dckr_pat_", "nvapi-", "glpat-",
    "pypi-", "wandb_v1_", "aiza", "ya29.", "sg.", "akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox", "xapp-", "hooks.slack",
    "eyj", "://", "-u", "--user", "authorization", "bearer", "basic", "sig", "cookie",
)  # fmt: skip

#: Characters: a secret shorter than this, or one that is an ordinary word, is replaced only where its name or form gives it away.
SPREAD_CHARS = 8


def redact(text: str, known: dict[str, str] | None = None) -> str:
    """`text` with every secret replaced by `⟨redacted:<kind>#<n>⟩`.

    `known` maps a secret to its placeholder and is filled as secrets are found: calls that share it give equal secrets equal placeholders,
    and hide a secret found once wherever it stands bare.
    """
    known = {} if known is None else known
    lower = text.lower()
    if any(anchor in lower for anchor in _ANCHORS):
        for kind, pattern in _SHAPES:
            text = pattern.sub(lambda m, kind=kind: _hide_group(m, kind, known), text)
        text = _ASSIGNED.sub(lambda m: _hide_value(m, known), text)
    for secret, placeholder in known.items():
        if len(secret) >= SPREAD_CHARS and secret in text and _is_mixed(secret):
            text = text.replace(secret, placeholder)
    return text


def _placeholder(secret: str, kind: str, known: dict[str, str]) -> str:
    if secret not in known:
        known[secret] = f"⟨redacted:{kind}#{len(known) + 1}⟩"
    return known[secret]


def _hide_group(match: re.Match[str], kind: str, known: dict[str, str]) -> str:
    group = 1 if match.re.groups else 0
    whole, start = match[0], match.start(group) - match.start()
    return whole[:start] + _placeholder(match[group], kind, known) + whole[start + len(match[group]) :]


def _hide_value(match: re.Match[str], known: dict[str, str]) -> str:
    before = _NAME_END.search(match.string, max(0, match.start() - 64), match.start())
    left = before[0] if before else ""
    whole, word, tail, sep = match[0], match["word"], match["tail"], match["sep"]
    spaced = sep.isspace()
    if spaced and not left.startswith("-"):  # `--password hunter2`, but not "the password is wrong"
        return whole
    quoted = match["quote"] is not None
    value = match["quoted"] if quoted else match["bare"]
    shouted = word.isupper() and "=" in sep
    if not quoted and not shouted and (stop := _STOP_LOWER.search(value)):
        value = value[: stop.start()]
    ends_line = not match.string[match.end() :].strip()
    # "wrong password: try again" and "password: hunter2" differ only in what the value looks like and in what follows it
    prose = not quoted and ":" in sep and not ends_line and value.isalpha()
    if not value or "⟨" in value or prose or _NOTHING.match(value) or not _is_secret_name(left, word.lower(), tail, value, shouted):
        return whole
    kind = {"pwd": "password", "passwd": "password"}.get(word.lower(), re.sub(r"[_-]", "_", word.lower()))
    start = (match.start("quoted") if quoted else match.start("bare")) - match.start()
    return whole[:start] + _placeholder(value, kind, known) + whole[start + len(value) :]


def _is_secret_name(left: str, word: str, tail: str, value: str, shouted: bool) -> bool:
    """Whether the name before the value means a secret; `tokens`, `pad_token` and the shell's PWD do not."""
    names = [part for part in re.split(r"[_.-]+", left.lower()) if part]
    if word == "pwd":
        return bool(names) and not left.lower().endswith("old") and not tail
    if word != "token":
        return True
    if not _NAME_TAIL.fullmatch(tail) or (names and names[-1] in _WORDS_OF_TEXT) or value.isdigit():
        return False
    if shouted or names:
        return len(value) >= 4
    return len(value) >= 12 and _is_mixed(value)


def _is_mixed(value: str) -> bool:
    """Letters and digits: no word of the language."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
