"""The Run tab: scripts, what they answer, and what is looked at beside them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.conftest import IMPORT, Opened, PageComplaints, refusal_of
from tests.console.seeing import findings, overflow
from tests.processes import NodeProcess

PLACE = {"ns": "shop", "db": "main"}


@pytest.fixture(scope="module", autouse=True)
def things(node: NodeProcess) -> None:
    answer = node.script(
        """
        DEFINE TABLE person;
        DEFINE INDEX by_age ON person FIELDS age;
        DEFINE FIELD name ON person TYPE string;
        INSERT INTO person array::map(0..1500, |$n|
            { id: $n, age: $n % 90, name: 'p' + type::string($n), boss: person:1 }) RETURN NONE;
        DEFINE TABLE odd;
        CREATE odd:1 SET a = 1;
        CREATE odd:2 SET b = { c: [1, 2] };
        DEFINE SPACE sessions;
        SET 'user:1' IN sessions VALUE { cart: [1] } EXPIRE 1h;
        SET 'user:2' IN sessions VALUE 1.0;
        LOCK 'nightly' IN sessions HOLDER 'worker-1' EXPIRE 1h
        """,
        **PLACE,
    )
    assert "error" not in answer, answer
    node.script(
        "DEFINE DATABASE shop.second; USE shop.second;"
        " DEFINE TABLE elsewhere; CREATE elsewhere:1 SET name = 'of the second'"
    )


def write(page: Page, text: str) -> None:
    """Type a script in the place of what stands there. Chromium itself would put styles into what
    it replaces over several lines, which the policy forbids."""
    editor = page.get_by_role("textbox", name="Script")
    editor.press("ControlOrMeta+a")
    editor.press("Delete")
    editor.fill(text)


def run(page: Page, text: str) -> None:
    write(page, text)
    page.get_by_role("button", name="Run", exact=True).click()


def test_records_of_one_flat_set_are_a_table_and_others_are_not(console: Page) -> None:
    run(console, "SELECT id, name, age FROM person LIMIT 3; SELECT * FROM odd; RETURN 12.30dec")
    first, second, third = (console.get_by_label(f"Result {n}", exact=True) for n in (1, 2, 3))
    expect(first.get_by_role("table")).to_be_visible()
    expect(first.get_by_role("row")).to_have_count(4)
    expect(first).to_contain_text("3 rows")
    expect(second.get_by_role("table")).to_have_count(0)
    expect(second).to_contain_text("odd:2")
    expect(third).to_contain_text("12.30dec")
    first.get_by_role("button", name="JSON", exact=True).click()
    expect(first.get_by_role("table")).to_have_count(0)
    first.get_by_role("button", name="Auto", exact=True).click()
    expect(first.get_by_role("table")).to_be_visible()
    second.get_by_role("button", name="Table", exact=True).click()
    expect(second.get_by_role("columnheader")).to_have_text(["id", "a", "b"])


def test_keys_run_all_or_what_is_selected(console: Page, node: NodeProcess) -> None:
    write(console, "CREATE odd:10;\nCREATE odd:11")
    editor = console.get_by_role("textbox", name="Script")
    editor.press("ControlOrMeta+Home")
    editor.press("Shift+End")
    editor.press("ControlOrMeta+Enter")
    expect(console.get_by_label("Result 1", exact=True)).to_be_visible()
    assert node.script("SELECT VALUE id FROM odd:10..", **PLACE)["results"][0]["rows"] == 1
    console.keyboard.press("ControlOrMeta+a")
    write(console, "CREATE odd:12; CREATE odd:13")
    console.keyboard.press("ControlOrMeta+Enter")
    expect(console.get_by_label("Result 2", exact=True)).to_be_visible()
    assert node.script("SELECT VALUE id FROM odd:10..", **PLACE)["results"][0]["rows"] == 3
    node.script("DELETE odd:10..", **PLACE)


def test_what_does_not_parse_is_marked_where_it_stands(
    console: Page, watch: PageComplaints
) -> None:
    watch.allow(refusal_of())
    run(console, "RETURN 1;\nSELECT * FRM person")
    expect(console.get_by_role("alert")).to_contain_text("expected FROM")
    expect(console.get_by_role("alert")).to_contain_text("line 2, column 10")
    expect(console.locator(".cm-lintRange-error")).to_have_text("FRM")


def test_what_ran_before_a_refusal_is_shown_with_it(console: Page, watch: PageComplaints) -> None:
    watch.allow(refusal_of())
    run(console, "CREATE odd:20; DELETE odd:404; THROW 'on purpose'")
    expect(console.get_by_label("Result 1", exact=True)).to_contain_text("odd:20")
    expect(console.get_by_label("Result 1", exact=True)).to_contain_text("1 record created")
    expect(console.get_by_label("Result 2", exact=True)).to_contain_text("0 records deleted")
    expect(console.get_by_role("alert")).to_contain_text("on purpose")
    expect(console.get_by_role("alert")).to_contain_text("after a part was committed")


def test_parameters_reason_and_record(console: Page, node: NodeProcess) -> None:
    write(console, "SELECT VALUE name FROM person WHERE age = $age LIMIT 1")
    console.get_by_text("Parameters and options").click()
    console.get_by_label("Parameters, as JSON").fill('{"age": ')
    expect(console.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    console.get_by_label("Parameters, as JSON").fill('{"age": {"$int": "7a"}}')
    expect(console.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    console.get_by_label("Parameters, as JSON").fill('{"age": {"$int": "7"}}')
    console.get_by_label("Reason").fill("a look")
    console.get_by_label("Keep it in the statement log").check()
    console.get_by_role("button", name="Run", exact=True).click()
    expect(console.get_by_label("Result 1", exact=True)).to_contain_text("p7")
    kept = node.script("INFO FOR STATEMENTS LIMIT 1")["results"][0]["value"][0]
    assert (kept["reason"], kept["surface"]) == ("a look", "http")


def test_rows_of_a_file_are_a_parameter(console: Page, node: NodeProcess, tmp_path: Path) -> None:
    console.get_by_text("Parameters and options").click()
    file = console.get_by_label("Rows from a file")
    given = console.get_by_label("Parameters, as JSON")
    (tmp_path / "whole.json").write_text('[{"id": 1, "n": 1.0, "m": 12345678901234567890.5}]')
    file.set_input_files(tmp_path / "whole.json")
    expect(given).to_have_value('{"rows": [{"id": 1, "n": 1.0, "m": 12345678901234567890.5}]}')
    (tmp_path / "not.json").write_text('{"id": 1}\n{"id": ')
    file.set_input_files(tmp_path / "not.json")
    expect(file).to_have_attribute("aria-invalid", "true")
    expect(given).to_have_value('{"rows": [{"id": 1, "n": 1.0, "m": 12345678901234567890.5}]}')
    (tmp_path / "lines.jsonl").write_text(
        '{"id": 1, "n": 1.0}\n\n{"id": 2, "n": 9007199254740993}\n'
    )
    file.set_input_files(tmp_path / "lines.jsonl")
    run(console, "DEFINE TABLE row; INSERT INTO row $rows RETURN NONE; SELECT * FROM row")
    expect(console.get_by_label("Result 3", exact=True)).to_contain_text("1.0")
    exact = {"$int": "9007199254740993"}
    assert node.script("SELECT VALUE n FROM row:2", **PLACE)["results"][0]["value"] == [exact]
    assert node.script("DELETE row RETURN BEFORE", **PLACE)["results"][0]["rows"] == 2


def test_many_rows_stay_few_in_the_page_and_are_sorted_and_filtered_here(console: Page) -> None:
    run(
        console,
        "SELECT * FROM array::map(0..100000, |$n| { n: $n, text: 'row ' + type::string($n) })",
    )
    result = console.get_by_label("Result 1", exact=True)
    expect(result).to_contain_text("100000 rows")
    assert result.get_by_role("row").count() < 100
    head = result.get_by_role("button", name="n", exact=True)
    head.click()
    head.click()
    expect(result.get_by_role("columnheader", name="n", exact=True)).to_have_attribute(
        "aria-sort", "descending"
    )
    expect(result.get_by_role("row").nth(1)).to_contain_text("row 99999")
    result.get_by_label("Filter these rows").fill("row 4242")
    expect(result).to_contain_text("11 of 100000 rows")
    result.get_by_label("Filter these rows").fill("")
    region = result.locator(".table")
    region.evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    expect(result.get_by_role("row").last).to_contain_text("row 0")


def test_results_are_saved_as_csv_and_json(console: Page, tmp_path: Path) -> None:
    run(console, "SELECT id, name, 1.0 AS one, 'a \"b\", c' AS odd FROM person:1")
    for way, name in (("Save CSV", "result.csv"), ("Save JSON", "result.json")):
        with console.expect_download() as saved:
            console.get_by_role("button", name=way).click()
        saved.value.save_as(tmp_path / name)
    text = (tmp_path / "result.csv").read_bytes().decode()
    assert text == 'id,name,one,odd\r\nperson:1,p1,1.0,"a ""b"", c"\r\n'
    assert json.loads((tmp_path / "result.json").read_text()) == [
        {"id": {"$rec": "person:1"}, "name": "p1", "one": 1.0, "odd": 'a "b", c'}
    ]
    assert '"one":1.0' in (tmp_path / "result.json").read_text()


def test_a_plan_is_drawn(console: Page) -> None:
    run(console, "EXPLAIN ANALYZE SELECT * FROM person WHERE age = 7 AND name != 'x' ORDER BY name")
    plan = console.locator(".plan")
    for words in ("SELECT", "ORDER", "WHERE", "index by_age", "17 entries", "17 rows read"):
        expect(plan).to_contain_text(words)


def test_a_plan_shows_columns(console: Page, node: NodeProcess) -> None:
    node.script(
        "DEFINE TABLE many; INSERT INTO many array::map(0..5000, |$n| { id: $n, n: $n }) RETURN"
        " NONE",
        **PLACE,
    )
    plan, select = console.locator(".plan"), "SELECT count() FROM many WHERE n > 4500 GROUP ALL"
    run(console, f"EXPLAIN {select}")
    expect(plan).to_contain_text("whole table, by its columns")
    expect(plan).to_contain_text("builds its blocks")
    node.script(f"{select}; UPDATE many:7 SET n = 5", **PLACE)
    run(console, f"EXPLAIN {select}")
    expect(plan).to_contain_text("2 blocks, 1 skipped")
    expect(plan).to_contain_text("1 changed, read by row")
    run(console, "EXPLAIN SELECT median(n) FROM many GROUP ALL")
    expect(plan).to_contain_text("read by row: median is computed for each row")
    node.script("DROP TABLE many", **PLACE)


def test_a_record_s_page_has_its_history(console: Page, node: NodeProcess) -> None:
    node.script("UPDATE person:5 SET age = 6", reason="a birthday", **PLACE)
    run(console, "SELECT id, boss FROM person:5")
    console.get_by_role("link", name="person:5").click()
    assert console.url.endswith("#/run/shop/main/record/person%3A5")
    expect(console.get_by_label("History", exact=True).get_by_role("row")).to_have_count(3)
    expect(console.get_by_label("History", exact=True)).to_contain_text("a birthday")
    console.get_by_role("button", name="Change it in a script").click()
    expect(console.get_by_role("textbox", name="Script")).to_contain_text("UPDATE person:5 CONTENT")
    console.go_back()
    expect(console.get_by_label("History", exact=True)).to_be_visible()


def test_a_table_is_read_page_by_page_at_one_moment(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/run/shop/main/table/person")
    expect(page.get_by_label("Table", exact=True)).to_contain_text("1000 of 1500 read")
    node.script("CREATE person:9000 SET name = 'late'", **PLACE)
    page.get_by_role("button", name="Read 1000 more").click()
    expect(page.get_by_label("Table", exact=True)).to_contain_text("1500 of 1500 read")
    expect(page.get_by_role("button", name="Read 1000 more")).to_have_count(0)
    page.get_by_role("button", name="Reload").click()
    expect(page.get_by_label("Table", exact=True)).to_contain_text("of 1501 read")
    node.script("DELETE person:9000", **PLACE)


def test_what_there_is_is_browsed(console: Page) -> None:
    tree = console.locator(".browse")
    tree.get_by_role("button", name="person").click()
    for words in ("name", "string", "by_age"):
        expect(tree).to_contain_text(words)
    tree.get_by_role("button", name="Select 100").click()
    expect(console.get_by_label("Result 1", exact=True)).to_contain_text("100 rows")
    tree.get_by_role("link", name="sessions").click()
    expect(console.get_by_role("heading", name="sessions")).to_be_visible()


def test_a_running_script_is_killed(console: Page, watch: PageComplaints) -> None:
    watch.allow(refusal_of())
    run(console, "FOR $x IN 0..100000000 { LET $y = $x }")
    console.get_by_role("link", name="Running").click()
    console.get_by_role("region", name="Running scripts").get_by_role(
        "button", name="End r-"
    ).click()
    console.get_by_role("dialog").get_by_role("button", name="End").click()
    expect(console.get_by_role("dialog")).to_have_count(0)
    console.get_by_role("link", name="Scripts").click()
    expect(console.locator(".results .notice")).to_contain_text("Cancelled")


def test_a_script_is_stopped(console: Page, node: NodeProcess) -> None:
    run(console, "FOR $x IN 0..100000000 { LET $y = $x }")
    console.get_by_role("button", name="Stop", exact=True).click()
    expect(console.locator(".results .notice")).to_contain_text("Stopped")
    console.get_by_role("link", name="History", exact=True).click()
    expect(console.locator(".past .chip").first).to_have_text("stopped")


@pytest.mark.own_page
def test_scripts_beside_each_other_and_what_was_run(console: Page) -> None:
    run(console, "RETURN 'first'")
    expect(console.get_by_label("Result 1", exact=True)).to_contain_text("first")
    console.get_by_role("button", name="New script").click()
    run(console, "RETURN 'second'")
    expect(console.get_by_label("Result 1", exact=True)).to_contain_text("second")
    console.get_by_role("button", name="RETURN 'first'", exact=True).click()
    expect(console.get_by_label("Result 1", exact=True)).to_contain_text("first")
    console.get_by_role("button", name="Close: RETURN 'first'").click()
    console.get_by_role("link", name="History").click()
    past = console.get_by_label("History of this browser session")
    expect(past.get_by_role("listitem")).to_have_count(3)
    past.get_by_role("button", name="Open").last.click()
    expect(console.get_by_role("textbox", name="Script")).to_contain_text("RETURN 'first'")
    assert console.evaluate("sessionStorage.length + localStorage.length") == 0


def test_words_and_names_are_completed(console: Page) -> None:
    editor = console.get_by_role("textbox", name="Script")
    editor.fill("")
    editor.press_sequentially("SELECT * FROM pers")
    console.locator(".cm-tooltip-autocomplete li", has_text="person").click()
    expect(editor).to_contain_text("SELECT * FROM person")


def test_hostile_values_are_text(console: Page, node: NodeProcess) -> None:
    bad = "<img src=x onerror=alert(1)>‮evil"
    node.script(
        "CREATE odd:bad SET a = $a, long = $long",
        params={"a": bad, "long": "x" * 1_000_000},
        **PLACE,
    )
    run(console, "SELECT * FROM odd:bad")
    result = console.get_by_label("Result 1", exact=True)
    expect(result).to_contain_text("<img src=x")
    assert result.locator("img").count() == 0
    result.get_by_role("button", name="xxxx").click()
    dialog = console.get_by_role("dialog")
    dialog.get_by_role("button", name="Show all").click()
    assert len(dialog.locator(".whole").inner_text()) > 1_000_000
    node.script("DELETE odd:bad", **PLACE)


HOSTILE = "<img src=x onerror=alert(1)> </b><script>alert(2)</script> & 'tin' &lt;b&gt; <b>no</b>"
SEARCHED = f"""
    DEFINE ANALYZER words TOKENIZERS class FILTERS lowercase; DEFINE TABLE mineral;
    DEFINE INDEX text ON mineral FIELDS title, body FULLTEXT ANALYZER words BOOST title 2;
    DEFINE INDEX near ON mineral FIELDS at VECTOR DIMENSION 2 DISTANCE EUCLIDEAN;
    INSERT INTO mineral [
        {{ id: 1, title: 'Tin mines', body: 'zinc', at: [1, 0] }},
        {{ id: 2, title: "{HOSTILE}", body: '{"far " * 100}tin{" away" * 100}', at: [0, 1] }}
    ] RETURN NONE;
    INSERT INTO mineral array::map(10..30, |$n| {{ id: $n, at: [$n, 1] }}) RETURN NONE"""
"""A table with texts and vectors."""


@pytest.fixture(scope="module")
def searched(node: NodeProcess) -> None:
    answer = node.script(SEARCHED, **PLACE)
    assert "error" not in answer, answer
    # A plan counts the records of segments: those that are folded.
    fresh = {"records": -1}
    while fresh["records"]:
        told = node.script("INFO FOR INDEX text ON mineral", **PLACE)["results"][0]["value"]
        fresh = told["fresh"]
        time.sleep(0.02)


@pytest.mark.usefixtures("searched")
def test_what_a_search_marks_is_marked_and_all_else_is_text(console: Page) -> None:
    run(
        console,
        "SELECT search::highlight(title) AS title, search::snippet(body, { words: 60 }) AS body"
        " FROM mineral WHERE [title, body] @@ 'tin OR alert' ORDER BY id;"
        "SELECT search::highlight(title, { escape: false }) AS title, title AS raw FROM mineral"
        " WHERE [title, body] @@ 'tin OR img' ORDER BY id;"
        "EXPLAIN SELECT id FROM mineral WHERE [title, body] @@ 'tin -zinc';"
        "EXPLAIN SELECT id FROM mineral WHERE at NEAREST 1 TO [1, 0]",
    )
    first, second, third, fourth = (
        console.get_by_label(f"Result {n}", exact=True) for n in (1, 2, 3, 4)
    )
    expect(fourth).to_contain_text("22 vectors compared")
    expect(fourth).to_contain_text("recall unmeasured")
    expect(third).to_contain_text("tin in 2 records")
    expect(third).to_contain_text("without zinc in 1 record")
    cells = first.locator("tbody td")
    expect(cells.nth(0)).to_have_text("Tin mines")
    expect(cells.nth(2)).to_have_text(HOSTILE)
    expect(cells.nth(3)).to_contain_text("…far far")
    expect(first.locator("mark")).to_have_text(["Tin", "alert", "alert", "tin", "tin"])
    expect(second.locator("tbody td").nth(2)).to_contain_text("<<b>img</b> src=x")
    assert second.locator("mark").count() == 0
    assert console.locator(".results :is(img, script, td b)").count() == 0
    cells.nth(3).get_by_role("button").click()
    expect(console.get_by_role("dialog").locator("mark")).to_have_text("tin")
    console.keyboard.press("Escape")
    assert findings(console) == []
    assert overflow(console) == []


def test_columns_and_texts_are_passages_as_a_search_makes_them(modules: Page) -> None:
    columns, texts = modules.evaluate(
        f"""async ([scripts, texts]) => {{
          const {{ passageColumns, passage }} = await ({IMPORT})('tabs/run/passages.js');
          const {{ statements }} = await ({IMPORT})('storeql.js');
          const texts_of = (script) => statements(script).map(({{ text }}) => text);
          return [
            scripts.map((one) => [...passageColumns(texts_of(one)).at(-1)]),
            texts.map(passage),
          ];
        }}""",
        [list(PASSAGE_COLUMNS), list(PASSAGES)],
    )
    assert dict(zip(PASSAGE_COLUMNS, columns, strict=True)) == PASSAGE_COLUMNS
    assert dict(zip(PASSAGES, texts, strict=True)) == PASSAGES


PASSAGE_COLUMNS = {
    "SELECT search::highlight(a) AS x, a FROM t": ["x"],
    "SELECT a, search::snippet(b.c, { words: 9 }) AS `a \\` b`, search::highlight(a) FROM t": [
        "a ` b", "search::highlight",
    ],
    "select search::highlight(a) /* as y */ as x from t": ["x"],
    "SELECT search::highlight(a, { before: '[' }) AS x FROM t": [],
    "SELECT search::highlight(a, { escape: false }) AS x FROM t": [],
    "SELECT search::highlight(a, $options) AS x FROM t": [],
    "SELECT 'b' + search::highlight(a) AS x, search::highlight(a) + 'b' AS y FROM t": [],
    "SELECT string::upper(search::highlight(a)) AS x, [search::highlight(a)] AS y FROM t": [],
    "SELECT 'search::highlight(a) AS x' FROM t -- search::highlight(a) AS x": [],
    "SELECT x, (SELECT search::highlight(a) AS x FROM u) AS y FROM t": [],
    "SELECT x FROM t WHERE x = (SELECT search::highlight(a) AS x FROM u)": [],
    "SELECT * FROM (SELECT search::highlight(a) AS x FROM t) WHERE a": ["x"],
    "LET $r = (SELECT search::highlight(a) AS x FROM t); SELECT * FROM $r": ["x"],
    "LET $r = (SELECT search::highlight(a) AS x FROM t); RETURN $r": ["x"],
    "LET $r = (SELECT search::highlight(a) AS x FROM t);"
    " SELECT x FROM search::rrf([$r, $s], { limit: 3 }) ORDER BY score": ["x"],
    "LET $r = (SELECT search::highlight(a) AS x FROM t); SELECT x FROM t WHERE id IN $r": [],
    "LET $r = (SELECT search::highlight(a) AS x FROM t); LET $r = 1; SELECT x FROM $r": [],
    "SELECT search::highlight(a": [],
}  # fmt: skip
"""Scripts, and the columns of their last statement that are passages."""
PASSAGES = {
    "": [""],
    "a": ["a"],
    "<b>a</b>": ["", "a", ""],
    "x <b>a</b><b>b</b> &lt;b&gt;&amp;&quot;&#x27;": ["x ", "a", "", "b", " <b>&\"'"],
    "<b>a": None,
    "a</b>": None,
    "<b>a<b>b</b></b>": None,
    "</b>a<b>": None,
    "<B>a</B>": None,
    "<b >a</b>": None,
    "<b>a</b><img src=x>": None,
    "a & b": None,
    "a &nbsp; b": None,
    "it's": None,
}
"""Texts, and their parts, in turn not marked and marked; None: they are no passage."""


@pytest.mark.usefixtures("searched")
def test_a_table_s_page_shows_its_indexes(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/run/shop/main/table/mineral")
    indexes = page.get_by_role("region", name="Indexes")
    text, near = (indexes.get_by_label(f"Index {name}") for name in ("text", "near"))
    for words in ("FULLTEXT", "ready", "words", "title 2.0, body 1.0", "1.2, 0.75"):
        expect(text).to_contain_text(words)
    for words in ("VECTOR", "2 numbers, F32", "EUCLIDEAN", "answers are exact", "unmeasured"):
        expect(near).to_contain_text(words)
    assert near.locator(".plot").count() == 0
    measured = node.script("MEASURE INDEX near ON mineral K 1", **PLACE)
    assert "error" not in measured, measured

    def answer(route: Route) -> None:
        """Stand for an index of many lists: a table of 10 000 vectors is not made for a picture."""
        told = route.fetch()
        found = told.json()
        for result in found.get("results", []):
            value = result["value"]
            if isinstance(value, dict) and isinstance(value.get("recall"), dict):
                value |= {"lists": 400, "probes": 8, "largest_list": 60}
                value["recall"] |= {"probes": 8, "state": "stale", "low": 0.91, "curve": CURVE}
        route.fulfill(response=told, json=found)

    page.route("**/script", answer)
    near.get_by_role("button", name="Refresh").click()
    expect(near).to_contain_text("stale")
    expect(near).to_contain_text("below 0.950, which is wanted")
    expect(near).to_contain_text("400, the largest of 60")
    expect(near.locator(".plot")).to_contain_text("at 8 probes")
    expect(near.locator(".plot")).to_contain_text("recall 0.960")
    expect(near.locator("canvas")).to_be_visible()
    near.get_by_text("Its figures").click()
    expect(near.get_by_role("row")).to_have_count(len(CURVE) + 1)
    expect(near.locator("tr[aria-current]")).to_contain_text("0.960")
    assert findings(page) == []
    assert overflow(page) == []
    near.get_by_role("button", name="Measure its recall").click()
    editor = page.get_by_role("textbox", name="Script")
    expect(editor).to_contain_text("MEASURE INDEX `near` ON `mineral`")


CURVE = [
    {"probes": probes, "value": value, "low": value - 0.05, "high": min(1.0, value + 0.02)}
    for probes, value in ((1, 0.5), (2, 0.7), (4, 0.9), (8, 0.96), (16, 0.99), (400, 1.0))
]
"""A curve of recall over probes."""


def test_a_script_that_runs_out_of_time_runs_once(
    console: Page, node: NodeProcess, watch: PageComplaints
) -> None:
    """Browsers send a request again by themselves that was answered 408."""
    watch.allow("console: Failed to load resource: the server responded with a status of 503")
    write(console, "CREATE odd SET late = true; FOR $x IN 0..100000000 { LET $y = $x }")
    console.get_by_text("Parameters and options").click()
    console.get_by_label("Timeout").fill("300ms")
    console.get_by_role("button", name="Run", exact=True).click()
    expect(console.get_by_role("alert")).to_contain_text("StatementTimeout")
    made = node.script(
        "SELECT count() AS n FROM odd WHERE late = true GROUP ALL; DELETE odd WHERE late = true",
        **PLACE,
    )
    assert made["results"][0]["value"] == [{"n": 1}]


def test_what_ran_is_for_everybody(console: Page) -> None:
    run(
        console,
        "EXPLAIN ANALYZE SELECT * FROM person WHERE age = 7 AND name != 'x' ORDER BY name;"
        " SELECT * FROM person LIMIT 20; SELECT * FROM odd; RETURN { a: [1, 'b', NULL] }",
    )
    console.get_by_text("Parameters and options").click()
    expect(console.get_by_label("Result 4", exact=True)).to_be_visible()
    assert findings(console) == []
    assert overflow(console) == []


def test_views_beside_it_are_for_everybody(opened: Opened) -> None:
    for view, there in (
        ("record/person%3A7", "History of person:7"),
        ("table/person", "Records of person"),
        ("running", "Running scripts"),
    ):
        page = opened(f"#/run/shop/main/{view}")
        expect(page.get_by_role("region", name=there)).to_be_visible()
        assert findings(page) == []
        assert overflow(page) == []
