"""API keys become tenants; what is no key becomes an error without a secret in it."""

from pathlib import Path

import pytest

from gateway.edge.auth import KeysFileInvalid, group_salt, load_keys, new_key, open_to_all
from gateway.errors import Unauthorized

KEY, DIGEST = new_key()
OTHER_KEY, OTHER_DIGEST = new_key()

TWO_TENANTS = f"""
tenants:
  - id: acme
    share_group: friends
    keys: [{{id: acme-1, sha256: {DIGEST}}}]
  - id: globex
    keys: [{{id: globex-1, sha256: {OTHER_DIGEST}}}]
"""


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.yaml"
    path.write_text(TWO_TENANTS)
    return path


def test_a_bearer_key_names_its_tenant_and_group(keys_file: Path) -> None:
    tenant = load_keys(keys_file, b"").tenant_of(((b"authorization", b"Bearer " + KEY.encode()),))
    assert (tenant.id, tenant.key_id, tenant.share_group) == ("acme", "acme-1", "friends")


def test_the_header_of_anthropic_clients_works_too(keys_file: Path) -> None:
    assert load_keys(keys_file, b"").tenant_of(((b"x-api-key", OTHER_KEY.encode()),)).id == "globex"


def test_a_tenant_without_a_group_is_alone_in_one(keys_file: Path) -> None:
    authenticator = load_keys(keys_file, b"")
    assert authenticator.share_groups == {"friends", "globex"}


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"authorization", b"Bearer pg-wrong"),),
        ((b"authorization", b"Basic " + KEY.encode()),),
        ((b"authorization", b"Bearer " + DIGEST.encode()),),
        ((b"authorization", b"Bearer \xff\xfe"),),
    ],
)
def test_no_key_a_wrong_key_and_a_stored_hash_are_all_refused(
    keys_file: Path, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    with pytest.raises(Unauthorized) as refused:
        load_keys(keys_file, b"").tenant_of(headers)
    assert KEY not in str(refused.value)
    assert "pg-wrong" not in str(refused.value)


def test_without_a_keys_file_everyone_is_the_default_tenant() -> None:
    assert open_to_all(b"").tenant_of(()).id == "default"


def test_groups_get_different_salts_and_replicas_the_same() -> None:
    assert group_salt("a", b"s") == group_salt("a", b"s")
    assert len({group_salt("a", b"s"), group_salt("b", b"s"), group_salt("a", b"t")}) == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tenants: []", "at least 1"),
        ("tenant: x", "Extra inputs"),
        ("tenants: [{id: a, keys: [{id: k, sha256: abc}]}]", "sha256"),
        (f"tenants: [{{id: 'a b', keys: [{{id: k, sha256: {DIGEST}}}]}}]", "id"),
        (TWO_TENANTS.replace(OTHER_DIGEST, DIGEST), "also another"),
        (TWO_TENANTS.replace("globex-1", "acme-1"), "two of the key id"),
        (TWO_TENANTS.replace("id: globex\n", "id: acme\n"), "two of the tenant id"),
        ("a: [", "keys.yaml"),
        (
            f"{TWO_TENANTS}\ntenants:\n  - {{id: third, keys: [{{id: k, sha256: {'0' * 64}}}]}}",
            "'tenants' stands twice",
        ),
    ],
)
def test_a_wrong_keys_file_is_refused_with_the_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(KeysFileInvalid, match=complaint):
        load_keys(path, b"")


def test_a_keys_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(KeysFileInvalid, match=r"keys\.yaml"):
        load_keys(path, b"")


def test_a_missing_keys_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeysFileInvalid, match=r"nowhere\.yaml"):
        load_keys(tmp_path / "nowhere.yaml", b"")
