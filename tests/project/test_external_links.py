"""Links to other sites lead somewhere: `make links`, which skips them where there is no network."""

import os
import re
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from test_site import PAGES, ROOT, prose

OWN = "https://github.com/jointleaf/jointleaf"  # there once it is published
SOURCES = [*PAGES, ROOT / "CITATION.cff", ROOT / "pyproject.toml", *ROOT.glob(".github/**/*.*")]
ADDRESS = re.compile(r"https?://[^\s)>\"'`{$]+[^\s)>\"'`{$.,;:]")
GONE = (404, 410)  # other errors are of servers that refuse machines


def addresses(pages: list[Path]) -> list[str]:
    """All addresses that pages name, but for templates and the project's own."""
    found = {address for page in pages for address in ADDRESS.findall(prose(page))}
    return sorted(a for a in found if not a.startswith((OWN, "http://localhost", "https://pypi")))


def own_files(pages: list[Path]) -> list[str]:
    """Files of the repository that pages name by their address."""
    found = re.findall(rf"{OWN}/blob/main/([\w./-]+)", "".join(map(prose, pages)))
    return sorted(set(found))


def status(address: str) -> int | None:
    """Ask for an address; return the status of the answer, None where no server answers."""
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, TimeoutError):
        return None


def broken(found: list[str]) -> list[str]:
    """Return the addresses that lead nowhere; skip the test where no server answers at all."""
    answers = {address: status(address) for address in found}
    if all(answer is None for answer in answers.values()):
        pytest.skip("no connection")
    return [address for address, answer in answers.items() if answer is None or answer in GONE]


def test_addresses_are_found(tmp_path):
    page = tmp_path / "page.md"
    links = f"[a](https://a.org/b) [c](d.md) <https://f.org/>. url: https://g.org/h, [i]({OWN}/j)"
    page.write_text(f"{links}\n```\n[e](https://e.org)\n```\n[k]({OWN}/blob/main/docs/x.md)")
    assert addresses([page]) == ["https://a.org/b", "https://f.org/", "https://g.org/h"]
    assert own_files([page]) == ["docs/x.md"]


def test_own_addresses_name_files_that_exist():
    found = own_files(SOURCES)
    assert found
    assert [path for path in found if not (ROOT / path).exists()] == []


class Answers(BaseHTTPRequestHandler):
    """A server whose addresses are the status that they answer with."""

    def do_GET(self):
        self.send_response(int(self.path[1:]))
        self.end_headers()

    def log_message(self, *args):
        pass


def test_addresses_without_a_page_or_a_server_are_broken():
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url, nobody = f"http://127.0.0.1:{server.server_port}", "http://127.0.0.1:9/none"
    try:
        found = broken([f"{url}/200", f"{url}/403", f"{url}/404", f"{url}/410", nobody])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert found == [f"{url}/404", f"{url}/410", nobody]
    with pytest.raises(pytest.skip.Exception, match="no connection"):
        broken([nobody])


@pytest.mark.skipif("JOINTLEAF_CHECK_LINKS" not in os.environ, reason="make links checks them")
def test_external_links_lead_somewhere():
    found = addresses(SOURCES)
    assert len(found) > 5
    assert broken(found) == []
