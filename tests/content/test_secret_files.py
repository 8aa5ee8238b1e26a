"""Names of files that hold credentials are recognised, and names that only resemble them are not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.content.secret_files import looks_secret

SECRET_NAMES = """
    passwords.txt password.txt Passwords.TXT my-passwords.csv db_password.txt dbpassword.txt DbPassword.ini
    passwords-2024.csv passwords_backup.xlsx passwd user.password
    terraform.tfvars prod.auto.tfvars network.tfvars.json terraform.tfstate terraform.tfstate.backup .terraformrc
    wp-config.php wp-config.php.bak wp-config.php~ WP-CONFIG.PHP LocalSettings.php local_settings.py
    id_rsa id_dsa id_ecdsa_sk id_ed25519.pub ID_ED25519 id_rsa_work id_rsa.bak id_rsa.old~ id_github id_work.pub
    server.pem SERVER.KEY server.key.old site.p12 a.pfx a.p8 release.jks debug.keystore vault.kdbx
    home.ovpn login.keychain
    .env .env.production .env.local .envrc .env~ prod.env .netrc _netrc site.netrc
    credentials credentials.json credentials.csv Credentials.xml credentials.yml.enc aws-credentials
    user_credentials.txt client_secret_1.json client-secret.json service-account.json service_account_prod.json
    secrets.yaml secrets.yml secrets.json secrets.toml secret.txt app.secrets secrets.prod.yaml secrets-staging.yaml
    api_key.txt api-keys.json ApiKeys.json apikey.txt accessKeys.csv rootkey.csv secret_key.txt jwt-private-key.json
    token.txt github_token access-token.txt token.json
    .aws .ssh .gnupg .kube .npmrc .pypirc .pgpass .my.cnf .git-credentials .htpasswd .vault-token auth.json kubeconfig
    shadow wallet.dat logins.json key4.db keystore.properties google-services.json sitemanager.xml sftp-config.json
"""

PUBLIC_NAMES = """
    id_mapping.csv id_card.png id_pool.py id_rsa_explained.md identity.md ids.txt
    password_reset.txt password-policy.txt password_reset.html passwords.py passwords.md test_passwords.rs passport.csv
    compass.txt bypass.yaml passenger_list.csv
    secrets.md secrets.py secret_santa.csv secret_garden.epub test_secrets.py secrets.rst
    credentials.go credentials.md credentials_provider.ts service_account.py client_secret.rb
    token.ts tokens.css design-tokens.json tokens.json tokenizer.json tokenizer_config.json special_tokens_map.json
    keyboard.txt monkey.txt donkeys.csv hotkeys.json keys.json key.txt translation-keys.json foreign_keys.csv
    keymap.toml public_key.txt KEYS keynote.pdf
    .env.example .env.sample example.env secrets.example.toml credentials.json.example passwords.schema.json
    terraform.tfvars.example example.tfvars wp-config-sample.php client_secret.example.json secrets.yaml.dist
    environment.md envelope.txt pem.txt tfvars.md monkey turkey.json accessibility.yaml main.tf README.md
"""


@pytest.mark.parametrize("name", [*SECRET_NAMES.split(), "passwords (1).txt", "Login Passwords.xlsx", "secrets.txt.1"])
def test_names_of_credentials_are_recognised(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", PUBLIC_NAMES.split())
def test_names_that_only_resemble_credentials_are_not_recognised(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize("name", ["example.com.key", "sample.pem", "id_rsa.example", "template.p12"])
def test_a_key_file_is_secret_even_if_its_name_contains_example(name: str) -> None:
    """A key of `example.com` is real; a file that is not a key may be an example."""
    assert looks_secret(name)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        (".ssh", True), ("credentials", True), ("id_rsa", True), ("old.keystore", True),
        ("secrets", False), ("passwords", False), ("id_generator", False), ("tokens", False), ("api_keys", False),
    ],
)  # fmt: skip
def test_a_directory_is_secret_only_if_programs_use_its_name(name: str, secret: bool) -> None:
    """A package may be called `secrets`; the files in it are checked by their own names."""
    assert looks_secret(name, directory=True) is secret


@given(st.sampled_from(SECRET_NAMES.split()), st.sampled_from([".bak", ".old", "~", ".orig", ".1", ".BAK", ".save~"]))
def test_a_backup_copy_of_a_secret_file_is_secret(name: str, ending: str) -> None:
    assert looks_secret(name + ending)


@given(st.text(max_size=255))
def test_any_text_is_accepted_as_a_name(name: str) -> None:
    assert looks_secret(name) in (True, False)


def test_any_name_takes_bounded_time() -> None:
    start = time.process_time()
    for piece in ("~", ".1", "id_", "secret", "key_", ".bak~", "_", "aA"):
        looks_secret(piece * 10_000)
    assert time.process_time() - start < 5
