"""How the page looks: the first screen, titles, covers, errors, accessibility."""

import json

import numpy as np
import pandas as pd
import pytest
from browser import AXE
from served import DATA, Service

import itemfold as ir

pytestmark = pytest.mark.browser
LIKED = "?item=12&item=57"
TITLES = dict(zip(DATA.item_ids.ids.tolist(), DATA.titles.tolist(), strict=True))
SCREENS = {"phone": (390, 844), "laptop": (1280, 800)}
FIRST_SCREEN_BYTES = 75_000  # everything before the first list, uncompressed and with headers


def items_of(browser, tiles: str) -> list[str]:
    """The ids of the tiles that match."""
    return browser.run(
        f"[...document.querySelectorAll({json.dumps(tiles)})].map((e) => e.dataset.item)"
    )


def boxes(browser, selector: str) -> list[dict[str, float]]:
    found = f"[...document.querySelectorAll({json.dumps(selector)})]"
    return browser.run(f"{found}.map((e) => e.getBoundingClientRect().toJSON())")


@pytest.mark.parametrize("screen", SCREENS)
def test_headline_tiles_and_a_list_are_on_the_first_screen(browser, service, recommender, screen):
    width, height = SCREENS[screen]
    browser.resize(width, height)
    browser.open(service.address)
    assert browser.texts("h1") == ["Pick what you like. Get recommendations."]

    def on_screen(selector: str) -> int:
        return sum(b["right"] <= width and b["bottom"] <= height for b in boxes(browser, selector))

    assert on_screen("h1") == 1
    assert on_screen(".tile") >= 3
    assert on_screen(".pick .because") >= 2
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_the_first_list_is_an_example_that_explains_itself(browser, service, recommender):
    browser.open(service.address)
    popular = [
        int(item)
        for item in browser.run(
            "[...document.querySelectorAll('.tile')].map((e) => e.dataset.item)"
        )
    ]
    names = dict(zip(DATA.item_ids.ids.tolist(), DATA.titles.tolist(), strict=True))
    genres = dict(zip(DATA.item_ids.ids.tolist(), DATA.genres.tolist(), strict=True))
    first = popular[0]
    second = next(i for i in popular if not {*genres[i].split("|")} & {*genres[first].split("|")})
    short = [names[item].rpartition(" (")[0] for item in (first, second)]
    assert browser.texts("#heading") == [f"If you liked {short[0]} and {short[1]}"]
    picks = recommender.recommend(history=[first, second], k=10)
    assert browser.texts(".pick .title") == [pick.title for pick in picks]
    assert all(text.startswith("Because you liked ") for text in browser.texts(".because"))
    assert browser.run("location.search") == ""


def test_no_item_is_on_two_shelves(browser, service):
    browser.open(service.address)
    items = items_of(browser, ".tile")
    assert len(items) == len(set(items))
    shelves = browser.texts(".shelf h2")
    assert len(shelves) > 2
    genres = dict(zip(DATA.item_ids.ids.tolist(), DATA.genres.tolist(), strict=True))
    for place, shelf in enumerate(shelves[1:], 1):
        items = items_of(browser, f"#more .shelf:nth-child({place}) .tile")
        assert items
        assert all(shelf in genres[int(item)].split("|") for item in items)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("Matrix, The (1999)", "The Matrix (1999)"),
        ("American in Paris, An (1951)", "An American in Paris (1951)"),
        (
            "City of Lost Children, The (Cité des enfants perdus, La) (1995)",
            "The City of Lost Children (La Cité des enfants perdus) (1995)",
        ),
        ("Avventura, L' (Adventure, The) (1960)", "L'Avventura (The Adventure) (1960)"),
        ("Good, the Bad and the Ugly, The (1966)", "The Good, the Bad and the Ugly (1966)"),
        ("Heat (1995)", "Heat (1995)"),
        ("I, Robot (2004)", "I, Robot (2004)"),
        ("Crouching Tiger, Hidden Dragon (2000)", "Crouching Tiger, Hidden Dragon (2000)"),
        ("Matrix, The", "The Matrix"),
        ("The, (The", "The, (The"),
        ("", ""),
    ],
)
def test_titles_are_written_as_people_write_them(browser, service, stored, shown):
    if not browser.run("location.href").startswith(service.address):
        browser.open(service.address)
    module = f"import('/page/titles.js').then((m) => m.readable({json.dumps(stored)}))"
    assert browser.run(module) == shown


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A service of data without titles and genres."""
    rng = np.random.default_rng(0)
    rows = {"user_id": rng.integers(0, 60, 900), "item_id": rng.integers(10_000, 10_040, 900)}
    run = ir.train(ir.split_interactions(ir.read(pd.DataFrame(rows)), seed=0), ir.models.EASE())
    run.save(tmp_path_factory.mktemp("bare") / "run")
    with Service(tmp_path_factory.getbasetemp() / "bare0" / "run") as service:
        yield service


@AXE
@pytest.mark.parametrize("screen", SCREENS)
def test_items_without_titles_and_genres_have_covers_too(browser, bare, screen):
    browser.resize(*SCREENS[screen])
    browser.open(bare.address)
    names = browser.texts(".tile .name")
    assert names
    assert all(10_000 <= int(name) < 10_040 for name in names)
    assert browser.texts(".shelf h2") == ["Popular"]
    assert browser.run("document.getElementById('more').hidden")
    assert browser.run("document.getElementById('search').placeholder") == "Search 40 items by id"
    colours = {
        browser.run(f"document.querySelectorAll('.cover')[{n}].style.cssText") for n in (0, 1)
    }
    assert len(colours) == 2
    assert browser.violations() == []


def test_an_item_has_the_same_drawing_on_its_tile_and_in_a_list(browser, service):
    browser.open(service.address)
    paths = "[...e.querySelectorAll('.cover path')].map((path) => path.getAttribute('d')).join()"
    drawings = f"[...document.querySelectorAll('.tile')].map((e) => [e.dataset.item, {paths}])"
    drawn = dict(browser.run(drawings))
    assert len(set(drawn.values())) > len(drawn) / 2  # items of a genre differ, too
    assert all(len(paths) > 20 for paths in drawn.values())
    names = {item: TITLES[int(item)] for item in drawn}
    small = (
        "[...document.querySelectorAll('.pick')].map((e) => [e.querySelector('.title').textContent"
    )
    listed = dict(browser.run(f"{small}, {paths}])"))
    both = [item for item in drawn if names[item] in listed]
    assert both
    assert all(drawn[item] == listed[names[item]] for item in both)


@pytest.mark.parametrize(
    ("genres", "motif"),
    [
        (["Drama", "Sci-Fi"], ["planet"]),
        (["Horror", "Thriller"], ["forest"]),
        (["Drama", "Crime"], ["blinds", "sunset"]),
    ],
)
def test_the_motif_of_a_cover_suits_a_genre(browser, service, genres, motif):
    if not browser.run("location.href").startswith(service.address):
        browser.open(service.address)
    names = f"[...'abcdefghij'].map((id) => m.motifName({json.dumps(genres)}, id))"
    found = browser.run(f"import('/page/motifs.js').then((m) => {names})")
    assert sorted(set(found)) == motif


def test_the_first_screen_needs_few_bytes(browser, service):
    browser.call("Network.enable")
    browser.call("Network.setCacheDisabled", cacheDisabled=True)
    browser.open(service.address)
    entries = "performance.getEntries().filter((e) => e.transferSize)"
    sizes = browser.run(f"{entries}.map((e) => [e.name, e.transferSize])")
    assert len(sizes) > 12
    assert sum(size for _, size in sizes) < FIRST_SCREEN_BYTES
    hosts = {name.split("/")[2] for name, _ in sizes}
    assert hosts == {service.address.split("/")[2]}
    browser.call("Network.setCacheDisabled", cacheDisabled=False)


def test_a_skeleton_and_the_search_are_there_before_any_answer(browser, service):
    browser.call("Page.enable")
    script = "window.answer = []; const real = fetch; window.fetch = (...asked) => "
    script += "new Promise((go) => answer.push(go)).then(() => real(...asked))"
    added = browser.call("Page.addScriptToEvaluateOnNewDocument", source=script)
    browser.call("Page.navigate", url=service.address)
    browser.wait("document.readyState === 'complete' && window.answer?.length === 2")
    browser.wait("performance.getEntriesByType('paint').length")
    assert browser.run("document.getElementById('results').ariaBusy") == "true"
    assert len(boxes(browser, ".waiting.tiles i")) > 2
    assert len(boxes(browser, ".waiting.rows i")) > 2
    browser.run("document.getElementById('search').focus()")
    browser.type("the")
    browser.wait("window.answer.length === 3")
    browser.run("answer[2](); null")
    browser.wait("document.querySelectorAll('#found [role=option]').length")
    name = browser.run("document.querySelector('#found [role=option]').firstChild.textContent")
    browser.press("Enter")
    browser.run("window.fetch = real; answer.forEach((go) => go()); null")
    browser.wait("document.querySelector('#chosen .liked')")
    browser.settle()
    assert browser.texts("#chosen .liked span") == [name]
    assert browser.texts("#heading") == ["Recommended for you"]
    assert not boxes(browser, ".waiting")
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])


@pytest.mark.parametrize(
    ("failing", "sentence"),
    [
        ("Promise.reject(new TypeError())", "The service cannot be reached. Is it running?"),
        (
            "Promise.resolve(new Response('{}', {status: 503}))",
            "The service is busy. Try again in a moment.",
        ),
    ],
)
def test_an_error_keeps_the_list_and_tries_again(browser, service, recommender, failing, sentence):
    browser.open(f"{service.address}/?item=12")
    before = browser.texts(".pick .title")
    browser.run(f"window.real = window.fetch; window.fetch = () => {failing}; null")
    browser.run("document.querySelector('.actions button').focus()")
    browser.click(".actions button")
    assert browser.texts("#note") == [sentence]
    assert browser.texts(".pick .title") == before
    assert len(boxes(browser, "#retry")) == 1
    assert browser.focused() == f"Like {before[0]}"
    browser.run("window.fetch = window.real; null")
    browser.wait("document.getElementById('retry').hidden")  # by itself, after two seconds
    browser.settle()
    first = recommender.recommend(history=[12], k=1)[0].item
    expected = recommender.recommend(history=[12, first], k=10)
    assert browser.texts(".pick .title") == [pick.title for pick in expected]
    assert browser.texts("#note") == [""]


def test_the_share_button_copies_the_address(browser, service):
    browser.open(f"{service.address}/{LIKED}&k=5")
    stub = "Object.defineProperty(navigator, 'clipboard', {configurable: true, value: "
    browser.run(f"{stub}{{writeText: async (text) => {{ window.copied = text; }}}}}}); null")
    browser.click("#share")
    browser.wait("window.copied")
    assert browser.run("window.copied") == f"{service.address}/{LIKED}&k=5"
    assert browser.texts("#shared") == ["Link copied."]
    browser.run(f"{stub}undefined}}); null")  # a page that is not served over TLS
    browser.click("#share")
    browser.wait("!document.getElementById('link').hidden")
    assert browser.run("document.getElementById('link-text').value").endswith(f"/{LIKED}&k=5")
    assert browser.focused() == "link-text"
    assert browser.run("getSelection().toString()") == f"{service.address}/{LIKED}&k=5"


@AXE
def test_new_items_have_a_mark_and_say_what_they_are_like(browser, tmp_path):
    run = ir.train(ir.split_interactions(DATA, seed=0), ir.models.EASE())
    run.save(tmp_path / "run")
    late, twin = tmp_path / "late.csv", DATA.item_ids.ids.tolist().index(12)
    row = f'9001,"{DATA.titles[twin]}",{DATA.genres[twin]}'
    late.write_text(f"item,title,genres\n{row}\n9002,Quite Alone (2020),Drama\n")
    picks = ir.Recommender(run, new_items=late).recommend(history=[12, 57], k=50, explain=True)
    new = [pick for pick in picks if pick.is_new]
    with Service(tmp_path / "run", "--new-items", late) as service:
        browser.open(f"{service.address}/{LIKED}&k=50")
        assert "92 items (2 new)" in browser.texts("#about")[0]
        marked = "[...document.querySelectorAll('.pick:has(.mark) .title')]"
        assert browser.run(f"{marked}.map((e) => e.textContent)") == [pick.title for pick in new]
        for text, pick in zip(browser.texts(".fresh"), new, strict=True):
            assert text.startswith("new like ")
            assert all(one.title in text for one in pick.like)
        browser.run("document.querySelectorAll('[aria-label^=\"Why \"]').forEach((e) => e.click())")
        assert set(browser.texts(".shares .rest .what")) == {"its features"}  # EASE has no other
        assert browser.violations() == []
        browser.open(f"{service.address}/?item=12&item=9002")
        assert browser.texts("#note") == [
            "New items do not change your list yet: Quite Alone (2020)."
        ]
        browser.open(service.address)
        assert browser.texts("#more .shelf:last-child h2") == ["New"]
        assert items_of(browser, "#more .shelf:last-child .tile") == ["9001", "9002"]
        browser.click("#more .shelf:last-child .tile")
        assert browser.texts("#heading") == [f"Similar to {DATA.titles[twin]}"]
        browser.run("document.getElementById('search').focus()")
        browser.type("quite alone")
        browser.wait("document.querySelector('#found .mark')")


@AXE
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize(
    "path", ["", f"{LIKED}&diversity=0.5", f"{LIKED}&not=30&with=ease", "?user=5", "?user=nobody"]
)
def test_axe_finds_no_violation(browser, service, path, width, dark):
    browser.resize(width, 900, dark=dark)
    browser.open(f"{service.address}/{path}")
    browser.run("document.getElementById('options').open = true")
    browser.run("document.querySelectorAll('[aria-label^=\"Why \"]').forEach((e) => e.click())")
    assert browser.violations() == []


def test_screenshots_can_be_taken(browser, service, tmp_path):
    browser.open(f"{service.address}/{LIKED}")
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_for_known_users_begins_with_what_is_popular(browser, tmp_path):
    split = ir.split_interactions(DATA, seed=0)
    ir.train(split, ir.models.MF(dim=4), epochs=1).save(tmp_path / "run")
    with Service(tmp_path / "run") as service:
        browser.open(service.address)
        assert browser.texts("#heading") == ["Popular now"]
        recommender = ir.Recommender.load(tmp_path / "run")
        picks = recommender.recommend(history=[], k=10)
        assert browser.texts(".pick .title") == [pick.title for pick in picks]
        counts = [f"Chosen by {pick.score:.0f} users" for pick in picks]
        assert browser.texts(".because") == counts
        browser.open(f"{service.address}/?user=5")
        known = recommender.recommend(5, k=10)
        assert browser.texts(".pick .title") == [pick.title for pick in known]
