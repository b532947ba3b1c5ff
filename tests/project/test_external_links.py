"""Links to other sites lead somewhere; needs a network, so that it runs with a variable alone."""

import os
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from test_site import PAGES, prose

OWN = "https://github.com/jointleaf/"  # there once it is published
ADDRESS = re.compile(r"\]\((https?://[^)\s]+)\)")
GONE = (404, 410)  # other errors are of servers that refuse machines


def addresses(pages: list[Path]) -> list[str]:
    """Addresses that pages link to, without those of the project itself."""
    found = {address for page in pages for address in ADDRESS.findall(prose(page))}
    return sorted(address for address in found if not address.startswith(OWN))


def status(address: str) -> int:
    """Ask for an address; return the status of the answer."""
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_addresses_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"[a](https://a.org/b) [c](d.md)\n```\n[e](https://e.org)\n```\n[f]({OWN}g)")
    assert addresses([page]) == ["https://a.org/b"]


@pytest.mark.skipif("JOINTLEAF_CHECK_LINKS" not in os.environ, reason="set JOINTLEAF_CHECK_LINKS=1")
def test_external_links_lead_somewhere():
    found = addresses(PAGES)
    assert len(found) > 5
    try:
        gone = [address for address in found if status(address) in GONE]
    except (urllib.error.URLError, TimeoutError) as error:
        pytest.skip(f"no connection: {error}")
    assert gone == []
