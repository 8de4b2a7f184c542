"""The report in a real browser: it loads nothing, fits the screen, and can be read on it."""

import pytest

pytest.importorskip("pyspark", reason="the report needs the extra spark")

from chasquimq.pipeline.report import page
from tests.support.browser import NAMES, a_tab, find_browser
from tests.support.figures import NOTHING, a_full_summary, a_summary

# One process runs them all: a browser is slow to start.
pytestmark = pytest.mark.xdist_group("browser")

MADE_AT_MS = 1_770_000_000_000

# What WCAG asks of text of this size.
LEAST_CONTRAST = 4.5

SIZES = """[...document.querySelectorAll('.plot svg, .track, .heat')].map(each => {
  const box = each.getBoundingClientRect(); return [box.width, box.height]; })"""

# Texts within one line of labels, as far as they are shown, whose boxes touch.
OVERLAPS = """[...document.querySelectorAll('.foot, .up, .heat thead tr')].flatMap(line => {
  const shown = [...line.children].filter(each => {
    const style = getComputedStyle(each);
    return each.innerText && style.display !== 'none' && style.visibility !== 'hidden'; });
  const boxes = shown.map(each => {
    const range = document.createRange(); range.selectNodeContents(each);
    return [each.innerText, range.getBoundingClientRect()]; });
  return boxes.flatMap(([name, a], at) => boxes.slice(at + 1).filter(([_, b]) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
  ).map(([other]) => name + ' on ' + other)); })"""

CONTRASTS = """(() => {
  const drawn = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = colour => { drawn.clearRect(0, 0, 1, 1); drawn.fillStyle = colour;
    drawn.fillRect(0, 0, 1, 1); return [...drawn.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
  const behind = each => { for (; each; each = each.parentElement) {
    const found = rgb(getComputedStyle(each).backgroundColor); if (found[3]) return found; } };
  const words = [...document.querySelectorAll('main *')].filter(each =>
    [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())
    && each.checkVisibility() && !each.closest('svg'));
  return words.map(each => {
    const [a, b] = [rgb(getComputedStyle(each).color), behind(each)].map(light);
    return [each.className || each.tagName,
      (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]; }); })()"""


@pytest.fixture(scope="module")
def tab():
    browser = find_browser()
    if browser is None:
        pytest.skip(f"there is no browser to look at the page with: none of {', '.join(NAMES)}")
    with a_tab(browser) as opened:
        yield opened


@pytest.fixture
def show(tab, tmp_path):
    """`show(summary, width=...)`: the tab with the page of a summary."""

    def open_it(summary, **how):
        file = tmp_path / "report.html"
        file.write_text(page(summary, made_at_ms=MADE_AT_MS), encoding="utf-8")
        tab.events.clear()
        tab.open(file, **how)
        return tab

    return open_it


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_the_page_loads_nothing_fits_the_screen_and_can_be_read(show, width, dark):
    tab = show(a_full_summary(), width=width, dark=dark)

    asked = [each["request"]["url"] for each in tab.told("Network.requestWillBeSent")]
    assert [url.partition(":")[0] for url in asked] == ["file"]
    assert tab.told("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled") == []

    sizes = tab.ask(SIZES)
    assert len(sizes) == 4 + 8 + 5 + 8 + 1
    assert all(wide > 200 and high >= 8 for wide, high in sizes), sizes
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert tab.ask(OVERLAPS) == []
    faint = [(what, ratio) for what, ratio in tab.ask(CONTRASTS) if ratio < LEAST_CONTRAST]
    assert faint == []


def test_the_key_figures_are_there_to_be_seen_and_to_be_heard(show):
    tab = show(a_full_summary(), width=1280)
    words = tab.ask("document.body.innerText")
    for figure in ("94.8% of 180,464 finished jobs", "5.4 times", "1,234, in 4 gaps",
                   "at most 5,032 per hour", "2.39 s", "KeyError: 'tax_number'",
                   "emails / welcome", "emails / (no name)", "Sun 1 Feb"):  # fmt: skip
        assert figure in words
    heard = tab.ask("[...document.querySelectorAll('[role=img]')].map(each => each.ariaLabel)")
    assert len(heard) == 4
    assert heard[0].startswith("Throughput: 176,326 jobs completed, 4,138 given up; most")
    assert heard[1] == "wait: p50 32.6 ms, p95 350 ms, p99 1.47 s"
    hover = tab.ask("document.querySelectorAll('.touch')[5].textContent")
    assert hover.startswith("Sat 31 Jan, 14:00\ncompleted: ")


@pytest.mark.parametrize("summary", [a_summary(), a_summary(**NOTHING)], ids=["one name", "none"])
def test_a_page_of_little_or_nothing_is_a_page_too(show, summary):
    tab = show(summary, width=390)
    assert tab.ask("document.documentElement.scrollWidth") <= 390
    assert tab.ask(OVERLAPS) == []
    assert tab.ask("document.querySelector('h1').innerText") == "What the queues did"
    assert tab.ask("window.evil") is None
