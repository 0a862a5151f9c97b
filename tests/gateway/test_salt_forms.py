"""The salts that the gateway puts into requests are such as every engine takes, whatever groups are called."""

from hypothesis import given
from hypothesis import strategies as st

from backends.dialects import DIALECTS
from gateway.edge.auth import group_salt

FORMS = {dialect.name: dialect.salt for dialect in DIALECTS if dialect.salt is not None}


@given(group=st.text(max_size=200), secret=st.binary(max_size=64))
def test_no_engine_refuses_the_salt_of_any_group(group: str, secret: bytes) -> None:
    assert set(FORMS) == {"reference", "vllm", "sglang", "trtllm"}
    salt = group_salt(group, secret)
    assert [name for name, form in FORMS.items() if not form.takes(salt)] == []
