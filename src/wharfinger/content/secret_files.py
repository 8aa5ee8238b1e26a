"""Recognises the names of files that likely hold credentials. It never opens the files.

A name looks secret for one of three reasons:

1. A program gives it to its credentials: `.netrc`, `id_ed25519`, `wp-config.php`, `server.key`, `prod.tfvars`.
2. A service gives it to the keys that it issues: `credentials…`, `client_secret…`.
3. A person chose it: its words end with `password`, `secrets`, `api_key` …, and its extension is that of notes or
   settings. Words for a state may follow (`secrets.prod.yaml`, `passwords-2024.csv`), but no others
   (`password_reset.txt`).

A copy (`server.key.bak`, `.env~`) is as secret as its original. Source code and documentation are published even if
their names have such words: `id_pool.py`, `credentials.go`, `secrets.md`. So are examples: `secrets.example.toml`,
`terraform.tfvars.sample`.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["looks_secret"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NAMES = _words("""
    .aws .azure .boto .chef .docker .dockercfg .ftpconfig .git-credentials .gitcookies .gnupg .htdigest .htpasswd .kube
    .my.cnf .mylogin.cnf .netrc .npmrc .password-store .pgpass .pypirc .remote-sync.json .rhosts .s3cfg .ssh
    .terraformrc .vault-token .vault_pass _netrc accesskeys.csv auth.json cookies.sqlite google-services.json
    googleservice-info.plist gshadow key.properties key3.db key4.db keystore keystore.properties kubeconfig
    local_settings.py localsettings.php logins.json master.passwd ntds.dit pgpass.conf recentservers.xml rootkey.csv
    secring.gpg settings.local.php sftp-config.json sftp.json shadow signing.properties sitemanager.xml terraform.rc
    token.json truststore vault_pass wallet.dat winscp.ini wp-config.php ws_ftp.ini
    """)
"""Names that programs give to their files, in lower case."""
_KEY_ENDS = tuple(
    _words("""
    .1pif .agekey .bks .gpgkey .jks .kdb .kdbx .key .keychain .keychain-db .keystore .mobileprovision .ovpn .p12 .p8
    .pem .pfx .pkcs12 .ppk .provisionprofile .psafe3 .publishsettings .pvk .snk .tfstate
    """)
)
"""Extensions of keys and key stores."""
_SETTINGS_ENDS = (".azurepubxml", ".env", ".netrc", ".nmconnection", ".pubxml", ".tfvars", ".tfvars.json")
_STARTS = ("credentials", "client_secret", "client-secret", "service-account", "service_account")
_SUGGESTED = r"id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?![a-z0-9])"
_PRIVATE_KEY = re.compile(_SUGGESTED).match
"""Matches the names that ssh-keygen suggests, and those that begin with them."""
_OWN_KEY = re.compile(rf"{_SUGGESTED}|id_[^.]+(?:\.pub)?\Z").match
"""Also matches names such as `id_github`, which people give to the key for one host; `id_mapping.csv` is data."""
_COPIES = _words("backup bak copy old orig save swp tmp")
"""Endings that programs and people append to the name of a copy; so are `~` and numbers."""

_HINT = re.compile(r"pass(?:word|wd|phrase)|secret|credential|token|keys?(?![a-z])").search
"""A name without a match has none of the words below."""
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_ENDINGS = (
    "password", "passwords", "passwd", "passphrase", "passphrases", "secret", "secrets", "credential", "credentials",
    "apikey", "apikeys",
)  # fmt: skip
"""Endings of words, so that `dbpassword` counts."""
_KEYS_OF = _words("api access secret private signing encryption ssh gpg pgp deploy master root account service storage")
"""Words before `key` or `keys` that make it a secret; `hotkeys.json` is no secret."""
_STATE = _words("""
    all backup bak copy db default dev development export file final list live local main new old prod production qa
    stage staging store test
    """)
"""Words that may follow the name of a secret, as numbers may."""
_EXAMPLE = frozenset(("example", "examples", "sample", "template", "dist", "schema", "dummy"))
_NOTES = _words("""
    asc cfg cnf conf config csv doc docx enc env gpg ini json json5 numbers ods odt pages plist properties
    rtf text toml tsv txt xls xlsx xml yaml yml
    """)
"""Extensions of notes, tables and settings."""
_TOKEN_NOTES = frozenset(("", "txt", "text"))
"""The extensions with which `token` is a secret: a `tokens.json` usually belongs to a design system or a tokenizer."""
_CODE_AND_DOCUMENTATION = _words("""
    adoc asciidoc c cc cpp cs css cxx go h hpp hs htm html ipynb java jinja jl js jsx kt kts less lua m md mdx mjs cjs
    mm org php pl proto py pyi r rb rs rst scala scss sh sql svelte swift tf ts tsx vb vue zig
    """)
"""Extensions of code and documentation."""


@lru_cache(4_096)
def looks_secret(name: str, *, directory: bool = False) -> bool:
    """Return whether a file or directory of this name likely holds credentials, whatever the case of its letters."""
    name = _original(name)
    lower = name.lower()
    ending = lower.rpartition(".")[2]
    if lower in _NAMES or lower.endswith(_KEY_ENDS):
        return True
    if lower.endswith(_SETTINGS_ENDS) or lower.startswith(".env"):
        return not _is_example(lower)
    if lower.startswith("id_"):
        # A directory such as `id_generator` is a package.
        return ending not in _CODE_AND_DOCUMENTATION and (_PRIVATE_KEY if directory else _OWN_KEY)(lower) is not None
    if lower.startswith(_STARTS):
        return ending not in _CODE_AND_DOCUMENTATION and not _is_example(lower)
    return not directory and _HINT(lower) is not None and _names_secret(name)


def _original(name: str) -> str:
    """Return the name without the endings of copies, such as `server.key` for `server.key.old~`."""
    while True:
        stem, dot, ending = name.rpartition(".")
        if name.endswith("~"):
            name = name[:-1]
        elif stem and dot and (ending.lower() in _COPIES or (ending.isdecimal() and len(ending) <= 3)):
            name = stem
        else:
            return name


def _is_example(lower: str) -> bool:
    return not _EXAMPLE.isdisjoint(_WORD.findall(lower))


def _names_secret(name: str) -> bool:
    """Return whether the words of a file's name say that the file holds a secret."""
    stem, dot, ending = name.rpartition(".")
    ending = ending.lower()
    if not dot or (ending not in _NOTES and ending not in _CODE_AND_DOCUMENTATION):
        stem, ending = name, ""  # `github_token`, `app.secrets`
    if ending in _CODE_AND_DOCUMENTATION:
        return False
    words = [word.lower() for word in _WORD.findall(_HUMP.sub(" ", stem))]
    if not _EXAMPLE.isdisjoint(words):
        return False
    while words and (words[-1] in _STATE or words[-1].isdecimal()):
        words.pop()
    if not words:
        return False
    last = words[-1]
    if last.endswith(_SECRET_ENDINGS):
        return True
    if last in ("token", "tokens"):
        return ending in _TOKEN_NOTES
    return last in ("key", "keys") and len(words) > 1 and words[-2] in _KEYS_OF
