"""docs/admin-api.md has every path, parameter and shape of the admin API as they are."""

from tests.repo.admin_page import made, written


def test_the_reference_of_the_admin_api_is_that_of_its_openapi_document() -> None:
    assert written() == made(), "python -m tests.repo.admin_page writes it anew"
