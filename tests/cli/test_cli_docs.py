"""What the documentation tells to type works as written."""

import re
import shlex
from pathlib import Path

from jointleaf._data.texts import DATE_FORMATS, detect_format
from jointleaf.cli import main

ROOT = Path(__file__).parents[2]


def shell_lines(page):
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def test_five_commands_lead_from_a_csv_file_to_a_report(tmp_path, monkeypatch, capsys):
    lines = shell_lines("README.md")
    assert len(lines) == 5
    assert lines[0].startswith('pip install ".[cli]"')
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for line in lines[1:]:
        name, *arguments = shlex.split(line, comments=True)
        assert name == "jointleaf"
        assert main(arguments) == 0, line
    assert (tmp_path / "flats.html").stat().st_size > 10_000
    assert len((tmp_path / "prices.csv").read_text().splitlines()) == 21
    out = capsys.readouterr().out
    assert "row 12: the prediction" in out
    assert "JOPLEnRegressor" in out


def test_every_command_of_the_page_is_there(capsys):
    page = (ROOT / "docs" / "command-line.md").read_text()
    commands = set(re.findall(r"^\$ jointleaf (\w+)", page, re.MULTILINE))
    assert commands == {"fit", "predict", "explain", "select", "bench", "info"}
    options = set(re.findall(r"--[a-z][a-z-]*", page)) - {"--help"}
    assert "--json" in options
    helps = ""
    for name in [*commands, "report", "export"]:
        main([name, "--help"])
        helps += capsys.readouterr().out
    assert {option for option in options if option not in helps} == set()


def test_the_forms_of_dates_are_those_that_are_read():
    page = (ROOT / "docs" / "command-line.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("| date |"))
    given = re.findall("`(.*?)`", line)
    days = [text for text in given if ":" not in text]
    times = [f" {text}" for text in given if ":" in text and not text.startswith("T")]
    assert len(times) == 3
    forms = {detect_format([day]) for day in days}
    with_times = {detect_format([day + time]) for day in days for time in times}
    full = {form.replace("%b", "%B") for form in forms if form and "-%b" not in form}
    assert forms | full | with_times >= set(DATE_FORMATS) - {f for f in DATE_FORMATS if "%B" in f}
    assert full | forms >= {form for form in DATE_FORMATS if "%H" not in form and "%I" not in form}
    assert None not in forms
