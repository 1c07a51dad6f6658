"""The report in a browser: what it asks for, what it does with and without scripts, and in print."""

from __future__ import annotations

import csv
import re
import time

import browser
import pytest
import reports

from unseen.report.html import render

pytestmark = pytest.mark.slow

HOSTILE = {
    0: "<script>document.title='taken'</script>",
    1: "</script><img src=x onerror=\"document.title='taken'\">",
    2: "\u202egnp.exe",
    3: "x" * 10_000,
    4: "=1+1",
    5: "שלום عالم",
}


@pytest.fixture(scope="module")
def page():
    with browser.chromium() as one:
        yield one


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    run = reports.folder(folder / "r", n=(150, 120), ids=HOSTILE)
    (folder / "report.html").write_text(render(run, run.read_results()), encoding="utf-8")
    return folder / "report.html"


def rows(page, column: int = 0) -> list[str]:
    return page.value(
        "Array.from(document.querySelectorAll('#records-table tbody tr'),"
        f" row => row.cells[{column}].textContent)"
    )


@pytest.mark.parametrize("script", [True, False])
def test_it_asks_for_nothing_and_complains_of_nothing(page, file, script: bool) -> None:
    page.open(file, script=script)
    assert page.requests == [file.as_uri()]
    assert page.complaints == []


def test_the_policy_holds_whatever_gets_into_the_page(page, file, tmp_path) -> None:
    text = file.read_text()
    bad = "<img src='https://example.org/a.png'><script>document.title='taken'</script>"
    spoilt = tmp_path / "spoilt.html"
    spoilt.write_text(text.replace("<main>", f"<main>{bad}"), encoding="utf-8")
    page.open(spoilt)
    assert page.value("document.title") != "taken"
    refused = [params for name, params in page.events if name == "Network.loadingFailed"]
    assert all(params.get("blockedReason") == "csp" for params in refused)
    assert any("Content Security Policy" in words for words in page.complaints)
    answered = [params for name, params in page.events if name == "Network.responseReceived"]
    assert all(params["response"]["url"].startswith("file:") for params in answered)


def test_without_scripts_the_highest_members_are_there(page, file) -> None:
    page.open(file, script=False)
    page.call("Emulation.setScriptExecutionDisabled", value=False)
    assert len(rows(page)) == 50
    assert set(rows(page, 1)) == {"member"}
    assert page.value("getComputedStyle(document.getElementById('records-controls')).display") == (
        "none"
    )
    assert page.value("document.getElementById('records-static').offsetHeight") > 0


def test_hostile_ids_are_text(page, file) -> None:
    page.open(file)
    assert page.value("document.title").startswith("Leakage found")
    assert page.value("document.querySelectorAll('img').length") == 0
    page.value("document.getElementById('records-side').value = ''")
    for wanted in ("<script>", "onerror", "(10000 characters)", "שלום", "u202egnp"):
        page.value(
            "var box = document.getElementById('records-filter');"
            f"box.value = {wanted!r}; box.dispatchEvent(new Event('input'))"
        )
        assert len(rows(page)) == 1, wanted
        assert wanted in rows(page)[0]
    assert page.value("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.complaints == []


def test_the_script_writes_what_was_there_before_it(page, file) -> None:
    page.open(file, script=False)
    page.call("Emulation.setScriptExecutionDisabled", value=False)
    static = [rows(page, column) for column in range(6)]
    page.open(file)
    assert [rows(page, column) for column in range(6)] == static


def test_rows_are_sorted_searched_and_turned(page, file) -> None:
    page.open(file)
    assert page.value("document.getElementById('records-status').textContent") == "1 to 50 of 150"
    scores = [float(value) for value in rows(page, 2)]
    assert scores == sorted(scores, reverse=True)
    head = "document.querySelectorAll('#records-table th')[2]"
    page.value(f"{head}.querySelector('button').click()")
    assert page.value(f"{head}.getAttribute('aria-sort')") == "ascending"
    scores = [float(value) for value in rows(page, 2)]
    assert scores == sorted(scores)
    page.value("document.getElementById('records-next').click()")
    assert page.value("document.getElementById('records-status').textContent") == "51 to 100 of 150"
    assert float(rows(page, 2)[0]) >= scores[-1]
    page.value(
        "var side = document.getElementById('records-side');"
        "side.value = '0'; side.dispatchEvent(new Event('change'))"
    )
    assert set(rows(page, 1)) == {"non-member"}
    page.value(
        "var box = document.getElementById('records-filter');"
        "box.value = 'HEALTH'; box.dispatchEvent(new Event('input'))"
    )
    assert set(rows(page, 5)) == {"health"}


def test_the_rows_are_downloaded_and_steer_no_spreadsheet(page, file, tmp_path) -> None:
    page.open(file)
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.value("document.getElementById('records-csv').click()")
    saved = tmp_path / "records.csv"
    for _ in range(100):
        if saved.exists() and saved.stat().st_size:
            break
        time.sleep(0.1)
    with saved.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == 150
    assert {line["side"] for line in lines} == {"member"}
    assert "'=1+1" in {line["id"] for line in lines}
    assert page.requests == [file.as_uri()] or page.requests[1].startswith("blob:")


def test_it_prints(page, file) -> None:
    page.open(file)
    paper = page.pdf()
    assert paper.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) in range(4, 16)


@pytest.mark.parametrize("pixels", [360, 768, 1280, 1920])
def test_nothing_sticks_out_at_any_width(page, file, pixels: int) -> None:
    page.open(file)
    page.width(pixels)
    assert page.value("document.documentElement.scrollWidth") <= pixels
    wide = page.value(
        "Array.from(document.querySelectorAll('main *, header *')).filter(one =>"
        " !one.closest('.scroll, svg, pre') && one.getBoundingClientRect().right >"
        " window.innerWidth + 1).map(one => one.outerHTML.slice(0, 80))"
    )
    assert wide == []
    gone = page.value(
        "Array.from(document.querySelectorAll('main *, header *')).filter(one =>"
        " !one.closest('.scroll, svg, pre, .unseen') && one.getBoundingClientRect().right < 0)"
        ".map(one => one.outerHTML.slice(0, 80))"
    )
    assert gone == []


def test_every_check_is_seen(page, file) -> None:
    page.open(file)
    page.width(1280)
    boxes = page.value(
        "Array.from(document.querySelectorAll('.checks > li'), one => {"
        " const box = one.getBoundingClientRect(); return [box.left, box.width, box.height]; })"
    )
    assert len(boxes) == 3
    assert all(left >= 0 and width > 500 and height > 20 for left, width, height in boxes)


def test_every_control_and_figure_has_a_name(page, file) -> None:
    page.open(file)
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    unnamed = [
        (node["role"]["value"], node["nodeId"])
        for node in tree
        if not node.get("ignored")
        and node["role"]["value"] in ("button", "link", "searchbox", "combobox", "image", "img")
        and not node.get("name", {}).get("value")
    ]
    assert unnamed == []
    levels = page.value("Array.from(document.querySelectorAll('h1,h2,h3'), one => one.tagName)")
    assert levels[0] == "H1"
    assert levels.count("H1") == 1


def test_text_stands_out_from_its_ground(page, file) -> None:
    page.open(file)
    # WCAG 2.2, 1.4.3: a contrast of 4.5 for text of this size, on white and on the wash.
    faint = page.value(
        """
        (function () {
          function light(colour) {
            var parts = colour.match(/[\\d.]+/g).slice(0, 3).map(function (part) {
              var share = part / 255;
              return share <= 0.04045 ? share / 12.92 : Math.pow((share + 0.055) / 1.055, 2.4);
            });
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          }
          function ground(one) {
            for (; one; one = one.parentElement) {
              var colour = getComputedStyle(one).backgroundColor;
              if (colour !== "rgba(0, 0, 0, 0)") return colour;
            }
            return "rgb(255, 255, 255)";
          }
          return Array.from(document.querySelectorAll("header *, main *, nav *, footer *"))
            .filter(function (one) {
              return !one.closest("svg, button:disabled, [aria-hidden]") && one.offsetHeight &&
                Array.from(one.childNodes).some(function (n) {
                  return n.nodeType === 3 && n.textContent.trim();
                });
            })
            .map(function (one) {
              var a = light(getComputedStyle(one).color), b = light(ground(one));
              return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.outerHTML.slice(0, 80)];
            })
            .filter(function (pair) { return pair[0] < 4.5; });
        })()
        """
    )
    assert faint == []


def test_ten_thousand_records_are_quick_enough_to_use(page, tmp_path) -> None:
    run = reports.folder(tmp_path / "r", n=(5000, 5000))
    file = tmp_path / "big.html"
    file.write_text(render(run, run.read_results()), encoding="utf-8")
    assert file.stat().st_size <= 500_000
    page.open(file)
    page.value(
        "var box = document.getElementById('records-filter');"
        "box.value = 'record-04321'; box.dispatchEvent(new Event('input'))"
    )
    assert rows(page) == ["record-04321"]
    assert page.complaints == []
