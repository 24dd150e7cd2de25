"""Keep secrets out of what people read: mask what looks like a credential.

    errors, events, logs, the inspector, the terminal --text, JSON--> mask, masked --> ***

One table of kinds, and each of them holds an example that the tests try. A net, not a promise:
nothing here replaces not putting secrets into errors. Every pattern is bounded, so the time it takes
grows with the length of the text and with nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

__all__ = ["KINDS", "LONGEST", "MASK", "Kind", "is_telling", "mask", "masked", "shortened"]

MASK = "***"
LONGEST = 100_000
"""Of a text that is longer, only so many characters are looked at and kept."""
_LONGEST_TOKEN = 4096
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of secret. `pattern` keeps its group 1 and hides the rest of what it matches."""

    name: str
    pattern: str
    example: str
    """A text with a made-up secret of this kind."""
    hints: tuple[str, ...]
    """One of these, in small letters, is in every text that holds one: what has none is not searched."""
    any_case: bool = False
    """True when capitals mean nothing."""

    def hide(self, text: str) -> str:
        """`text` without secrets of this kind."""
        return _compiled(self.pattern, self.any_case).sub(_hidden, text)


@cache
def _compiled(pattern: str, any_case: bool) -> re.Pattern[str]:
    """Compiled when a text first needs it: all together take as long as the rest of our import."""
    return re.compile(pattern, re.IGNORECASE if any_case else 0)


def _hidden(match: re.Match[str]) -> str:
    return f"{match[1] or ''}{MASK}"


# Nothing that belongs to a word stands before the prefix of a key.
_START = r"(?<![A-Za-z0-9])"


def _key(name: str, prefix: str, rest: str, example: str, *hints: str) -> Kind:
    """A key that is known by how it begins. What is shown is that beginning."""
    return Kind(name, f"({_START}(?:{prefix})){rest}", example, hints)


def _text(name: str, pattern: str, example: str, *hints: str) -> Kind:
    return Kind(name, pattern, example, hints, any_case=True)


_WORDS = (
    r"api[_-]?key|access[_-]?key(?:[_-]?id)?|account[_-]?key|shared[_-]?access[_-]?key|secret[_-]?key|"
    r"signing[_-]?key|encryption[_-]?key|private[_-]?key|secret|token|passwd|password|passphrase|pwd|"
    r"authorization|credentials?|connection[_-]?string|database[_-]?url|dsn"
)
_TELLING = rf"(?:{_WORDS}|cookies?)$"
_CERTAIN = r"(?:secret|passwd|password|passphrase|pwd)$"
# "password: required" is a sentence, not a password.
_PROSE = (
    r"(?:required|missing|invalid|expired|incorrect|cannot|should|needed|unknown|rejected|refused|"
    r"revoked|provided|accepted|denied|disabled|none|null|true|false|undefined|bearer|basic)\b"
)

# The order matters: what says more about a secret comes first.
KINDS: tuple[Kind, ...] = (
    _text(
        "private key",
        r"(-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)(?:(?!-----END)[\s\S]){0,20000}",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA1c7\n-----END RSA PRIVATE KEY-----",
        "private key",
    ),
    _text(
        "database URL",
        r"((?<![a-z])(?:postgres(?:ql)?|mysql|mariadb|mssql|oracle|redis|rediss|valkey|mongodb|amqp|amqps|"
        r"clickhouse|cockroachdb|nats|kafka|ldaps?|smtps?|ftps?|sftp)(?:\+[a-z0-9]{1,20})?"
        r"://[^\s:/@\"'<>]{0,200}:)(?!password@|\*\*\*@)[^\s\"'<>]{1,300}(?=@)",
        "postgresql://app:hu/nter@2@db:5432/chat",
        "://",
    ),
    _text(
        "URL with a password",
        r"(://[^\s/:@]{0,200}:)(?!password@|\*\*\*@)[^\s/]{1,200}(?=@)",
        "https://me:hunter2@host/x",
        "://",
    ),
    _text(
        "URL with a token",
        r"(://)(?=[^\s/:@\d]{0,60}\d)[\w.~%+-]{20,200}(?=@)",
        "https://0123456789abcdef0123456789abcdef@o1.ingest.example.com/42",
        "://",
    ),
    _text(
        "Slack or Discord webhook",
        r"((?:hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks)/)[\w/-]{16,200}",
        "https://hooks.slack.com/services/T00000000/B00000000/aBcDeFgHiJkLmNoPqRsTuVwX",
        "hooks.slack.com/",
        "/api/webhooks/",
    ),
    _text(
        "query of a URL",
        r"([?&](?:(?:[a-z]{1,20}[_-]){0,3}(?:token|key|secret|password|passwd|signature|sig|auth|jwt|ticket)|code|"
        r"x-amz-credential|x-amz-security-token|x-goog-credential)=)[^\s&\"'#<>]{6,2000}",
        "https://api.example.com/v1/models?alt=sse&key=0a1b2c3d4e5f",
        "?",
        "&",
    ),
    _text(
        "Authorization header",
        r"((?:proxy-)?authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
        r"(?![a-z]{0,20}[ \t]{0,3}\*\*\*)(?:[a-z]{1,20}[ \t]{1,3})?)[^\s\"',;]{4,4000}",
        "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
        "authorization",
    ),
    _text(
        "cookie",
        r"((?:set-)?cookie[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?=[^\r\n\"'=;]{1,200}=)[^\r\n\"']{4,4000}",
        "Cookie: session=0123456789abcdef; theme=dark",
        "cookie",
    ),
    Kind(
        "bearer or basic credentials",
        (
            # A sentence goes on in small letters; a token has a digit, a sign, or mixes its letters.
            r"(\b(?:[Bb]earer|BEARER|[Bb]asic|BASIC)\s{1,3})"
            r"(?=[A-Za-z0-9.~+/-]{0,200}(?:[0-9_=]|[a-z][A-Z]))[\w.~+/=-]{8,4000}"
        ),
        "Bearer abcdefgh.12345678",
        ("bearer", "basic"),
    ),
    _key(
        "JSON web token",
        "eyJ",
        r"[\w-]{8,4000}(?:\.[\w-]{2,4000}){0,4}",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "eyj",
    ),
    _key(
        "OpenAI, Anthropic, OpenRouter or DeepSeek",
        r"(?:sk|pk|rk)-",
        r"(?=[A-Za-z_-]{0,60}[\d*]|[A-Za-z]{12}|(?:ant|proj|or|svcacct|admin)-)[\w*-]{8,400}",
        "sk-proj-abcdefgh12345678",
        "sk-",
        "pk-",
        "rk-",
    ),
    _key(
        "Stripe",
        r"(?:sk|pk|rk)_(?:live|test)_|whsec_",
        r"[\w+/=]{10,300}",
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "k_live_",
        "k_test_",
        "whsec_",
    ),
    _key(
        "AWS",
        "AKIA|ASIA|ABIA|ACCA",
        r"[A-Z0-9]{12,128}",
        "AKIAIOSFODNN7EXAMPLE",
        "akia",
        "asia",
        "abia",
        "acca",
    ),
    _key(
        "Google",
        r"AIza|ya29\.|GOCSPX-",
        r"[\w-]{16,400}",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "aiza",
        "ya29.",
        "gocspx-",
    ),
    _key(
        "Azure client secret",
        r"[\w~.-]{3}\dQ~",
        r"[\w.~-]{20,60}",
        "abc8Q~0123456789abcdefghijklmnopqrstuv",
        "q~",
    ),
    _key(
        "GitHub",
        r"gh[pousr]_|github_pat_",
        r"\w{16,300}",
        "ghp_abcdefghijklmnop1234",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
    ),
    _key(
        "GitLab",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-",
        r"[\w.-]{16,300}",
        "glpat-abcdefghij1234567890",
        "gl",
    ),
    _key(
        "Slack",
        r"xox[a-z]-|xapp-|xoxe\.xox[bp]-",
        r"[\w-]{8,300}",
        "xoxb-123456789012-abcdefghijkl",
        "xox",
        "xapp-",
    ),
    _key("Twilio", "SK|AC", r"[0-9a-f]{32}(?![0-9a-zA-Z])", "SK0123456789abcdef0123456789abcdef", "sk", "ac"),
    _key(
        "SendGrid",
        r"SG\.",
        r"[\w-]{16,100}\.[\w-]{16,100}",
        "SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789abcdefg",
        "sg.",
    ),
    Kind(
        "Telegram bot",
        r"((?<![0-9])[0-9]{8,10}:)[\w-]{35}(?![\w-])",
        "https://api.telegram.org/bot123456789:AAabcdefghijklmnopqrstuvwxyz0123456/sendMessage",
        (":",),
    ),
    Kind(
        "Discord bot",
        r"(?<![\w.-])([MNO][\w-]{3})[\w-]{20,28}\.[\w-]{6,7}\.[\w-]{27,45}",
        "MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcDe.abcdefghijklmnopqrstuvwxyz0123456789ab",
        (".",),
    ),
    _key(
        "Hugging Face, Groq, Replicate",
        "hf_|gsk_|r8_",
        r"\w{16,300}",
        "hf_abcdefghijklmnopqrstuvwxyz012345",
        "hf_",
        "gsk_",
        "r8_",
    ),
    _key(
        "xAI, Perplexity, NVIDIA, Tavily, Cerebras, Pinecone, LangSmith, Fireworks",
        r"xai-|pplx-|nvapi-|tvly-(?:dev-)?|csk-|pcsk_|lsv2_(?:pt|sk)_|fw_",
        r"[\w-]{16,300}",
        "pplx-0123456789abcdefghijklmnopqrstuv",
        "xai-",
        "pplx-",
        "nvapi-",
        "tvly-",
        "csk-",
        "pcsk_",
        "lsv2_",
        "fw_",
    ),
    _key("npm", "npm_", r"\w{16,300}", "npm_abcdefghijklmnopqrstuvwxyz0123456789", "npm_"),
    _key(
        "PyPI",
        "pypi-",
        r"(?=[\w-]{0,60}[A-Z0-9])[\w-]{24,400}",
        "pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAwLTAwMDA",
        "pypi-",
    ),
    _key(
        "DigitalOcean",
        r"do[opr]_v1_",
        r"[0-9a-f]{32,128}",
        "dop_v1_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "_v1_",
    ),
    _key(
        "Mailgun, Mailchimp",
        r"key-",
        r"[0-9a-f]{32}(?![\w-])",
        "key-0123456789abcdef0123456789abcdef",
        "key-",
    ),
    _key(
        "Shopify",
        r"shp(?:at|ca|pa|ss)_",
        r"[0-9a-fA-F]{16,100}",
        "shpat_0123456789abcdef0123456789abcdef",
        "shp",
    ),
    _key("Databricks", "dapi", r"[0-9a-f]{32}(?:-\d)?(?!\w)", "dapi0123456789abcdef0123456789abcdef", "dapi"),
    _key(
        "Airtable",
        r"pat[A-Za-z0-9]{14}\.",
        r"[0-9a-f]{32,100}",
        "patAbCdEfGhIjKlMn.0123456789abcdef0123456789abcdef",
        "pat",
    ),
    _key(
        "Linear, Notion, Figma, Vault, Grafana, Sentry, Supabase, PlanetScale, Doppler, Postman, New Relic",
        r"lin_api_|ntn_|secret_|figd_|hv[sbr]\.|glsa_|glc_|sntrys_|sbp_|pscale_(?:tkn|pw|oauth)_|dp\.(?:pt|st|ct)\.|PMAK-|NRAK-",
        r"(?=[A-Za-z_.+/=-]{0,60}\d)[\w.+/=-]{20,400}",
        "lin_api_abcdefghijklmnopqrstuvwxyz0123456789abcd",
        "lin_api_",
        "ntn_",
        "secret_",
        "figd_",
        "hvs.",
        "hvb.",
        "hvr.",
        "glsa_",
        "glc_",
        "sntrys_",
        "sbp_",
        "pscale_",
        "dp.",
        "pmak-",
        "nrak-",
    ),
    _key(
        "age",
        "AGE-SECRET-KEY-1",
        r"[A-Z0-9]{20,100}",
        "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ",
        "age-secret",
    ),
    _text(
        "quoted or assigned under a telling name",
        rf"((?:{_WORDS})(?:[\"']\s{{0,3}}[:=]\s{{0,3}}[\"']?|\s{{0,3}}=\s{{0,3}}[\"']?|\s{{0,3}}:\s{{0,3}}[\"']))"
        rf"(?!{_PROSE}|\S{{0,40}}\*\*\*)[^\s\"',;&)\]}}<>]{{3,4000}}",
        "api_key=abcdef123456&model=x",
        "key",
        "secret",
        "token",
        "pass",
        "pwd",
        "authorization",
        "credential",
        "connection",
        "database",
        "dsn",
    ),
    _text(
        "said after a telling name",
        rf"((?:{_WORDS})\s{{0,3}}:\s{{0,3}}|api key provided:\s{{1,3}})"
        rf"(?!{_PROSE}|\S{{0,40}}\*\*\*)[^\s\"',;&)\]}}<>]{{6,4000}}",
        "x-api-key: 0123456789abcdef",
        "key",
        "secret",
        "token",
        "pass",
        "pwd",
        "authorization",
        "credential",
        "connection",
        "database",
        "dsn",
    ),
)


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` with everything that looks like a credential, and every one of `secrets`, as `***`."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
    text = shortened(text, LONGEST)
    lowered = text.lower()
    for kind in KINDS:
        if any(hint in lowered for hint in kind.hints):
            text = kind.hide(text)
    return text


def shortened(text: str, longest: int) -> str:
    """At most `longest` of `text`, without the word at the cut: half a key is not recognised any more."""
    if len(text) <= longest:
        return text
    kept = text[:longest]
    edge = longest - min(_LONGEST_TOKEN, longest // 2)
    last = max(kept.rfind(" ", edge), kept.rfind("\n", edge))
    return f"{kept[: last if last >= 0 else edge]}… ({len(text)} characters)"


def is_telling(name: str) -> bool:
    """True when what stands under this name is a secret: `password`, `OPENAI_API_KEY`, `clientSecret`."""
    return _compiled(_TELLING, True).search(name[-100:]) is not None


def masked(value: Any) -> Any:
    """The same JSON with every text masked, and hidden whole where its name tells what it is."""
    return _masked(value, _DEEPEST)


def _masked(value: Any, deep: int) -> Any:
    if isinstance(value, str):
        return mask(value)
    if not deep:
        return MASK if isinstance(value, list | tuple | Mapping) else value
    if isinstance(value, list | tuple):
        return [_masked(item, deep - 1) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        return {key: _named(key, item, deep - 1) for key, item in entries.items()}
    return value


def _named(key: Any, value: Any, deep: int) -> Any:
    if isinstance(key, str):
        if isinstance(value, str) and value and is_telling(key):
            return MASK
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and _compiled(_CERTAIN, True).search(key[-100:])
        ):
            return MASK
    return _masked(value, deep)
