"""The page in a browser: by mouse, by keyboard, on a phone."""

import http.server
import importlib.resources
import json
import threading
import time
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
from served import DATA, Service

import itemfold as ir

pytestmark = pytest.mark.browser
LIKED = "?item=12&item=57"
NAMES = ("gnn · lightgcn", "ease")
KINDS = {"js": "text/javascript", "css": "text/css"}


def titles(picks) -> list[str]:
    return [pick.title for pick in picks]


def open_bars(browser) -> None:
    browser.run("document.querySelectorAll('[aria-label^=\"Why \"]').forEach((e) => e.click())")


TITLES = dict(zip(DATA.item_ids.ids.tolist(), DATA.titles.tolist(), strict=True))


def test_a_shared_address_shows_the_list_with_its_reasons(browser, service, recommender):
    browser.open(f"{service.address}/{LIKED}&k=5")
    picks = recommender.recommend(history=[12, 57], k=5, explain=True)
    assert browser.texts(".pick .title") == titles(picks)
    assert browser.texts("#chosen .liked span") == [TITLES[12], TITLES[57]]
    assert not browser.texts(".shares")  # bars on demand
    open_bars(browser)
    reasons = [reason for pick in picks for reason in pick.reasons]
    assert browser.texts(".shares .what") == [reason.title for reason in reasons]
    signs = [text[0] for text in browser.texts(".shares .value")]
    assert signs == ["−" if reason.share < 0 else "+" for reason in reasons]
    open_bars(browser)
    assert not browser.texts(".shares")


def test_the_sentence_names_the_largest_shares(browser, service, recommender):
    history = [12, 57, 30, 41]
    browser.open(f"{service.address}/?{'&'.join(f'item={item}' for item in history)}")
    picks = recommender.recommend(history=history, k=10, explain=True)
    named = 0
    for text, pick in zip(browser.texts(".because"), picks, strict=True):
        shares = sorted((r.share, r.title.rpartition(" (")[0]) for r in pick.reasons)[::-1]
        expected = [name for share, name in shares[:2] if share >= shares[0][0] / 2]
        assert text == f"Because you liked {' and '.join(expected)}"
        named += len(expected)
    assert 10 < named < 20  # one or two


def test_negative_shares_go_to_the_left_of_zero(browser, service, other):
    browser.open(f"{service.address}/{LIKED}&not=30&run=ease")
    picks = other.recommend(history=[12, 57], dislikes=[30], k=10, explain=True)
    shares = [reason.share for pick in picks for reason in pick.reasons]
    assert min(shares) < 0 < max(shares)
    open_bars(browser)
    least, width = min(shares), max(shares) - min(shares)
    bars = "[...document.querySelectorAll('.bar i')]"
    left = browser.run(f"{bars}.map((e) => parseFloat(e.style.left))")
    wide = browser.run(f"{bars}.map((e) => parseFloat(e.style.width))")
    assert left == pytest.approx([100 * (min(0, s) - least) / width for s in shares], abs=0.01)
    assert wide == pytest.approx([100 * abs(s) / width for s in shares], abs=0.01)
    assert len(browser.texts(".minus")) == sum(share < 0 for share in shares)


def test_the_match_is_relative_to_the_best(browser, service, recommender):
    browser.open(f"{service.address}/{LIKED}")
    scores = [pick.score for pick in recommender.recommend(history=[12, 57], k=10)]
    assert min(scores) > 0
    found = browser.run("[...document.querySelectorAll('.match')].map((e) => e.ariaLabel)")
    assert found == [
        f"Match: {score / scores[0]:.0%} of the best".replace("%", " %") for score in scores
    ]
    module = "import('/page/lists.js').then((m) => m.matches({}))"
    assert browser.run(module.format("[2, -1, 0.5]")) == pytest.approx([1, 0.1, 0.55])
    assert browser.run(module.format("[-3, -3]")) == [1, 1]


def test_search_pick_and_the_list_changes(browser, service, recommender):
    browser.open(service.address)
    browser.run("document.getElementById('search').focus()")
    browser.type(TITLES[12])
    browser.press("Enter")  # before the answer to the search is there
    browser.wait("document.querySelector('#chosen .liked')")
    browser.settle()
    assert browser.texts(".pick .title") == titles(recommender.recommend(history=[12], k=10))
    assert browser.texts("#heading") == ["Recommended for you"]
    assert browser.run("location.search") == "?item=12"


def test_the_keyboard_alone_is_enough(browser, service, recommender):
    browser.open(service.address)
    browser.press("Tab")
    assert browser.focused() == "skip"
    browser.press("Tab")
    assert browser.focused() == "search"
    browser.type("the")
    browser.wait("document.querySelectorAll('#found [role=option]').length > 1")
    browser.press("ArrowDown")
    browser.press("ArrowDown")
    chosen = browser.run("document.querySelector('[aria-selected=true]').firstChild.textContent")
    active = browser.run("document.getElementById('search').getAttribute('aria-activedescendant')")
    assert active == "option-1"
    browser.press("Enter")
    browser.wait("document.querySelector('#chosen .liked')")
    browser.settle()
    assert browser.texts("#chosen .liked span") == [chosen]
    assert browser.focused() == "search"
    stops = 0
    while not browser.focused().startswith("Like "):
        browser.press("Tab")
        stops += 1
    assert stops <= 6  # the chip, start over, the shelf, options, share, the first row
    first, second, *_ = browser.texts(".pick .title")
    assert browser.focused() == f"Like {first}"
    browser.press("ArrowDown")
    assert browser.focused() == f"Like {second}"
    browser.press("ArrowRight")
    assert browser.focused() == f"Dislike {second}"
    browser.press("ArrowUp")
    browser.press("Home")
    browser.press("Enter")
    browser.wait("document.querySelectorAll('#chosen .liked').length === 2")
    browser.settle()
    assert browser.focused().startswith("Like ")  # of what is first now
    browser.run("document.getElementById('skip').focus()")
    browser.press("Enter")
    assert browser.focused() == "heading"


def test_a_tile_likes_an_item_and_feedback_is_stored_in_order(browser, service):
    browser.open(service.address)
    tile = browser.run("document.querySelector('.tile').dataset.item")
    browser.click(".tile")
    assert browser.texts("#chosen .liked span") == [TITLES[int(tile)]]
    assert browser.run("document.querySelector('.tile').ariaPressed") == "true"
    picks = browser.texts(".pick .title")
    browser.click(".pick button[aria-label^='Like']")
    browser.click(".tile")  # taken back
    assert browser.texts("#chosen .liked span") == picks[:1]
    browser.wait("fetch('/v1/livez')")

    def stored() -> list[tuple[str, str]]:
        rows = [json.loads(line) for line in service.feedback.read_text().splitlines()]
        assert {row["run"] for row in rows} == {"gnn"}
        return [(row["event"], TITLES[row["item_id"]]) for row in rows][-12:]

    expected = [("liked", TITLES[int(tile)]), *(("shown", title) for title in picks)]
    expected.append(("liked", picks[0]))
    for _ in range(200):  # it is sent in the background
        if service.feedback.exists() and stored() == expected:
            break
        time.sleep(0.05)
    assert stored() == expected


def test_a_disliked_item_leaves_the_list(browser, service, recommender):
    browser.open(f"{service.address}/{LIKED}")
    first = browser.texts(".pick .title")[0]
    browser.click("button[aria-label^='Dislike']")
    assert first not in browser.texts(".pick .title")
    assert browser.texts("#chosen .disliked span") == [f"not {first}"]
    address = browser.run("location.href")
    browser.open(service.address)
    browser.open(address)
    assert first not in browser.texts(".pick .title")
    browser.click("#chosen .disliked button")
    assert browser.texts(".pick .title")[0] == first


def test_similar_items_have_an_address_and_a_way_back(browser, service, recommender):
    browser.open(f"{service.address}/{LIKED}")
    before = browser.texts(".pick .title")
    browser.click("button[aria-label^='Items similar']")
    item = recommender.recommend(history=[12, 57], k=1)[0]
    assert browser.texts("#heading") == [f"Similar to {item.title}"]
    assert browser.focused() == "heading"
    expected = titles(recommender.similar_items(item.item, 10))
    assert browser.texts(".pick .title") == expected
    browser.open(browser.run("location.href"))
    assert browser.texts(".pick .title") == expected
    browser.click("#back")
    assert browser.texts(".pick .title") == before
    browser.run("history.back()")
    browser.wait("document.getElementById('heading').textContent.startsWith('Similar')")


def test_two_models_side_by_side_with_what_they_share(browser, service, recommender, other):
    browser.open(f"{service.address}/{LIKED}&with=ease")
    lists = [recommender.recommend(history=[12, 57], k=10), other.recommend(history=[12, 57], k=10)]
    for number, (name, picks) in enumerate(zip(NAMES, lists, strict=True)):
        column = f".column:nth-child({number + 1})"
        assert browser.texts(f"{column} h3") == [name]
        assert browser.texts(f"{column} .title") == titles(picks)
    shared = {pick.item for pick in lists[0]} & {pick.item for pick in lists[1]}
    assert shared
    for number, picks in enumerate(lists):
        marked = browser.texts(f".column:nth-child({number + 1}) .shared .title")
        assert marked == [pick.title for pick in picks if pick.item in shared]
    choices = "[...document.getElementById('with').options].map((e) => e.value)"
    browser.wait(f"{choices}.length === 2")  # a copy of the run is not another model
    assert browser.run(choices) == ["", "ease"]
    browser.run("document.getElementById('with').value = ''")
    browser.run("document.getElementById('with').onchange()")
    browser.wait("document.querySelectorAll('.column').length === 1")
    assert "with" not in browser.run("location.search")


def test_a_known_user_keeps_the_history_when_something_is_liked(browser, service, recommender):
    run = recommender.run
    user = run.user_ids.ids.tolist()[0]
    history = run.item_ids.ids[run.train[[0]].indices].tolist()
    browser.open(service.address)
    browser.run(f"document.getElementById('user').value = '{user}'")
    browser.run("document.getElementById('k').onchange()")  # draws the options
    browser.settle()
    browser.run("document.getElementById('known').requestSubmit()")
    browser.wait(f"document.getElementById('heading').textContent === 'For user {user}'")
    browser.settle()
    assert browser.texts("#chosen .known span") == [TITLES[item] for item in history[:8]]
    picks = recommender.recommend(user, k=10)
    assert browser.texts(".pick .title") == titles(picks)
    browser.click(".pick button[aria-label^='Like']")
    both = recommender.recommend(history=[*history, picks[0].item], k=10)
    assert browser.texts(".pick .title") == titles(both)
    assert browser.texts("#heading") == [f"For user {user}, with your choices"]
    kept = browser.texts(".pick .title")
    browser.run("document.getElementById('user').value = 'nobody'")
    browser.run("document.getElementById('known').requestSubmit()")
    browser.wait("document.getElementById('note').textContent === 'Unknown user: nobody.'")
    assert browser.texts(".pick .title") == kept  # with its heading
    assert browser.texts("#heading") == [f"For user {user}, with your choices"]
    browser.open(f"{service.address}/?user=nobody")
    assert browser.texts("#note") == ["Unknown user: nobody."]
    assert not browser.texts(".pick")


@pytest.mark.parametrize(
    ("slider", "setting"), [("diversity", "diversity"), ("discount", "popularity_discount")]
)
def test_a_slider_changes_the_list_and_the_address(browser, service, recommender, slider, setting):
    browser.open(f"{service.address}/{LIKED}")
    plain = browser.texts(".pick .title")
    browser.run("document.getElementById('options').open = true")
    browser.run(f"document.getElementById('{slider}').focus()")
    for _ in range(14):
        browser.press("ArrowRight")
    browser.wait(f"location.search.includes('{slider}=0.7')")
    browser.settle()
    steering = ir.Steering(**{setting: 0.7})
    expected = titles(recommender.recommend(history=[12, 57], k=10, steering=steering))
    assert expected != plain
    assert browser.texts(".pick .title") == expected
    assert browser.texts(f"#{slider}-text") == ["70 %"]
    assert browser.focused() == slider
    address = browser.run("location.href")
    browser.open(service.address)
    browser.open(address)
    assert browser.texts(".pick .title") == expected
    assert not browser.run("document.getElementById('options').open")
    browser.run("document.getElementById('options').open = true")
    browser.run(f"document.getElementById('{slider}').focus()")
    browser.press("Home")
    browser.wait("!location.search.includes('=0.')")
    browser.settle()
    assert browser.texts(".pick .title") == plain
    assert browser.texts(f"#{slider}-text") == ["off"]


class Pictures(http.server.BaseHTTPRequestHandler):
    """A picture at every address but one."""

    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/none.svg" else 200)
        self.send_header("Content-Type", "image/svg+xml")
        self.end_headers()
        if self.path != "/none.svg":
            self.wfile.write(b'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="30"/>')

    def log_message(self, *_) -> None:
        pass


def test_pictures_are_shown_from_permitted_places_alone(browser, folder, recommender, tmp_path):
    picks = [pick.item for pick in recommender.recommend(history=[12, 57], k=5)]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        here = f"http://127.0.0.1:{server.server_port}"
        addresses = [f"{here}/a.svg", f"{here}/none.svg", "http://elsewhere.example/a.svg"]
        rows = [*zip(picks, [*addresses, "javascript:alert(1)"], strict=False)]
        lines = "\n".join(f"{item},{address}" for item, address in rows)
        (tmp_path / "items.csv").write_text(f"item_id,poster_url\n{lines}\n")
        images = "[...document.querySelectorAll('#lists img')]"  # those of shelves are not loaded
        for options, expected in ((("--image-host", here), addresses[:1]), ((), [])):
            with Service(folder, "--item-table", tmp_path / "items.csv", *options) as service:
                browser.open(f"{service.address}/{LIKED}&k=5")
                browser.wait(f"{images}.every((i) => i.complete && i.naturalWidth)")
                assert browser.run(f"{images}.map((i) => i.src)") == expected
        server.shutdown()


def test_a_key_is_asked_for_in_the_page(browser, folder):
    with Service(folder, "--api-key", "a-key-that-is-long-enough") as service:
        browser.open(service.address)
        assert browser.texts("#note") == ["This service needs an API key."]
        assert browser.texts("label[for=key-text]") == ["API key"]  # and not the sentence again
        browser.run("document.getElementById('key-text').value = 'a-key-that-is-long-enough'")
        browser.run("document.getElementById('key').requestSubmit()")
        browser.wait("document.querySelector('.pick .title')")
        assert browser.run("document.getElementById('key').hidden")


@pytest.mark.parametrize(
    "path", ["", f"{LIKED}&discount=1", f"{LIKED}&with=ease", "?user=5", f"{LIKED}&similar=12"]
)
def test_on_a_phone_nothing_is_too_wide_and_the_list_begins_high(browser, service, path):
    browser.resize(360, 740)
    browser.open(f"{service.address}/{path}")
    assert browser.run("document.documentElement.scrollWidth") <= 360
    top = "document.querySelector('#results').getBoundingClientRect().top"
    assert browser.run(top) < 560


def test_long_ids_and_titles_are_kept_and_shown_as_text(browser, tmp_path):
    rng = np.random.default_rng(0)
    items = 2**53 + 1 + 2 * rng.integers(0, 30, 600)  # all odd: a double would make them even
    frame = pd.DataFrame({"user_id": rng.integers(0, 60, 600), "item_id": items})
    ir.train(ir.split_interactions(ir.read(frame), seed=0), ir.models.EASE()).save(tmp_path / "run")
    first, odd = int(items[0]), f"<b>{'x' * 250}"
    with Service(tmp_path / "run") as service:
        browser.open(f"{service.address}/?item={first}&item={quote(odd)}&k=5")
    expected = ir.Recommender.load(tmp_path / "run").recommend(history=[first], k=5)
    assert browser.texts(".pick .title") == [str(pick.item) for pick in expected]
    assert browser.texts("#note") == [f"Unknown to this model and ignored: {odd}."]
    assert browser.run("document.documentElement.scrollWidth") <= 1200


class Proxy(http.server.BaseHTTPRequestHandler):
    """The page as it is, and a proxy's error page for all the rest."""

    page = importlib.resources.files("itemfold.serving.http").joinpath("page")

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2] or "index.html"
        is_page = self.path == "/" or self.path.startswith("/page/")
        content = self.page.joinpath(name).read_bytes() if is_page else b"<html>Bad Gateway"
        kind = KINDS.get(name.rpartition(".")[2], "text/html")
        self.send_response(200 if is_page else 502)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_) -> None:
        pass


def test_an_error_page_of_a_proxy_is_a_sentence(browser):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        browser.open(f"http://127.0.0.1:{server.server_port}/")
        assert browser.texts("#note") == ["The service does not answer (status 502)."]
        server.shutdown()
