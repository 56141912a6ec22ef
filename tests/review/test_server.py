"""The server: what people say through it is what `Discovery` would write, and nothing that is asked breaks it."""

import io
import json
import shutil
import subprocess
import sys
import threading

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from PIL import Image
from starlette.testclient import TestClient

from newfound.discovery.journal import read_edits
from newfound.discovery.result import Discovery
from newfound.errors import InputError
from newfound.review import places
from newfound.review.desk import Desk
from newfound.review.pictures import Pictures
from newfound.review.serve import HERE, guarded, listen
from newfound.review.server import PAGE, act, build_app
from tests.discovery.made import ABSENT, CAT, FIRST, SECOND, THIRD
from tests.discovery.test_killed import witnessed
from tests.review.made import write_run

TOKEN = "token"


@pytest.fixture(autouse=True)
def _no_map(monkeypatch):
    """The map is drawn in the background, and not here."""
    monkeypatch.setattr(places, "flatten_apart", lambda features, seed: features[:, :2])


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path)


@pytest.fixture
def client(folder):
    return serve(folder)


def serve(folder, by="Ana"):
    guard = guarded(Desk(folder, by=by), None, TOKEN, 8000)
    headers = {"x-newfound-token": TOKEN}
    return TestClient(guard, base_url=f"http://{HERE}:8000", headers=headers, raise_server_exceptions=False)


def say(client, action, seen=None, **what):
    seen = client.get("/api/state").json()["length"] if seen is None else seen
    return client.post("/api/edits", json={"action": action, "seen": seen} | what)


def names(client):
    return {line["number"]: line["name"] for line in client.get("/api/state").json()["classes"] if line["number"] > 0}


def test_every_verb_writes_the_line_that_python_would(client, folder, tmp_path):
    rows = Discovery.load(folder).classes.rows(FIRST).tolist()
    parts = [rows[:4], rows[4:]]
    said = [
        ("rename", {"number": FIRST, "name": "sea pen"}, lambda run: run.rename(FIRST, "sea pen")),
        ("split", {"number": FIRST, "parts": parts}, lambda run: run.split(FIRST, parts)),
        ("merge", {"numbers": [SECOND, CAT]}, lambda run: run.merge([SECOND, CAT])),
        ("move", {"rows": [0, 1], "to": THIRD}, lambda run: run.move([0, 1], THIRD)),
        ("new class", {"rows": [2, 3], "name": "eel"}, lambda run: run.new_class([2, 3], "eel")),
        ("new class", {"rows": [4]}, lambda run: run.new_class([4])),
        ("set aside", {"rows": [5]}, lambda run: run.set_aside([5])),
        ("accept", {"number": THIRD, "rows": [0]}, lambda run: run.accept(THIRD, images=[0])),
        ("accept", {"number": THIRD}, lambda run: run.accept(THIRD)),
        ("accept as guessed", {"rows": [6, 40, 41]}, lambda run: run.accept(None, images=[6, 40, 41])),
        ("undo", {}, lambda run: run.undo()),
        ("redo", {}, lambda run: run.redo()),
    ]
    twin = Discovery.load(folder, by="Ana")
    for number, (action, what, verb) in enumerate(said, 1):
        answer = say(client, action, **what)
        assert answer.status_code == 200, answer.text
        assert answer.json()["length"] == number == len(read_edits(folder))  # on the disk before it is confirmed
        verb(twin)
    plain = [edit._replace(at="") for edit in read_edits(folder)]
    assert plain == [edit._replace(at="") for edit in twin.edits]
    assert all(edit.by == "Ana" for edit in plain)


def test_known_classes_are_merged_only_by_those_who_say_that_they_mean_it(client, folder):
    refused = say(client, "merge", numbers=[CAT, ABSENT])
    assert refused.status_code == 422
    assert "known classes" in refused.json()["detail"]
    assert not read_edits(folder)
    assert say(client, "merge", numbers=[CAT, ABSENT], force=True).json()["result"] == CAT


def test_images_that_were_set_aside_have_no_guess_to_accept(client):
    say(client, "set aside", rows=[5])
    assert say(client, "accept as guessed", rows=[4, 5]).status_code == 422
    assert say(client, "accept as guessed", rows=[4]).json()["reviewed"] == 2


def test_what_python_says_is_seen_by_the_page_and_the_other_way_round(client, folder):
    other = Discovery.load(folder, by="Bo")
    with other.together():
        other.rename(FIRST, "crab")
    assert client.get("/api/length").json() == {"length": 1}
    assert names(client)[FIRST] == "crab"
    say(client, "rename", number=SECOND, name="eel")
    assert other.follow() == 1
    assert other.classes.names[SECOND] == "eel"


def test_who_has_not_seen_what_others_said_does_not_undo_it(client, folder):
    say(client, "rename", number=FIRST, name="crab")
    with (other := Discovery.load(folder)).together():
        other.rename(SECOND, "eel")
    refused = say(client, "undo", seen=1)
    assert refused.status_code == 409
    assert "Somebody else" in refused.json()["detail"]
    assert names(client)[SECOND] == "eel"
    assert say(client, "undo").json()["done"]
    assert names(client)[SECOND] == "new-3"


def test_what_no_longer_fits_is_told_from_what_never_did(client, folder):
    with (other := Discovery.load(folder)).together():
        other.merge([FIRST, SECOND])
    assert say(client, "rename", seen=0, number=SECOND, name="x").status_code == 409
    assert say(client, "rename", number=SECOND, name="x").status_code == 422
    assert len(read_edits(folder)) == 1


def test_who_edits_beside_others_is_told_and_loses_nothing(client, folder):
    with (other := Discovery.load(folder)).together():
        made = other.new_class([0])
    answer = say(client, "new class", seen=0, rows=[1]).json()
    assert answer["others"]
    assert answer["result"] == made + 1
    assert not say(client, "rename", number=made, name="x").json()["others"]


def test_pages_that_say_something_at_once_lose_none_of_it(client, folder):
    second = serve(folder, by="Bo")  # a server of its own, as another process would be
    answers = []

    def work(mine, numbers):
        answers.extend(say(mine, "new class", seen=0, rows=[row]).json()["result"] for row in numbers)

    threads = [threading.Thread(target=work, args=(mine, range(start, 44, 4)))
               for start, mine in enumerate((client, client, second, second))]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(6, 50))
    now = Discovery.load(folder).classes
    assert all(len(now.rows(number)) == 1 for number in answers)
    assert len({*now.names.values()}) == len(now.names)


def test_a_line_that_a_crash_cut_off_is_gone_and_the_next_is_whole(client, folder):
    say(client, "rename", number=FIRST, name="crab")
    with (folder / "edits.jsonl").open("a") as file:
        file.write('{"action": "rename", "cla')
    assert say(client, "rename", number=SECOND, name="eel").status_code == 200
    assert [edit.names for edit in read_edits(folder)] == [("crab",), ("eel",)]


def test_killed_at_any_write_of_the_page_what_was_confirmed_is_there_and_the_rest_is_written_again(folder, tmp_path):
    lives, said = [], []

    def die():
        lives.append((tmp_path / f"life {len(lives)}", [*said]))
        shutil.copytree(folder, lives[-1][0])

    desk = Desk(folder, by="Ana")
    with witnessed(die):
        for number, name in ((FIRST, "crab"), (SECOND, "eel")):
            desk.say(lambda run, number=number, name=name: run.rename(number, name), len(said))
            said.append(name)
        desk.close()
    assert len(lives) >= 2 + 2 * 3
    for life, confirmed in lives:
        there = [name for edit in read_edits(life) for name in edit.names]
        assert there[: len(confirmed)] == confirmed
        Desk(life).close()
        assert all((name in (life / "classes.csv").read_text()) == (name in there) for name in ("crab", "eel"))
        assert not [*life.glob("*.newfound"), *life.glob(".*.newfound")]


def test_images_are_sent_with_what_they_are_and_missing_ones_told(client, folder, tmp_path):
    for path in ("/api/thumb/7", "/api/image/7"):
        answer = client.get(path)
        with Image.open(io.BytesIO(answer.content)) as image:
            assert f"image/{image.format.lower()}" == answer.headers["content-type"]
            middle = (image.width // 2, image.height // 2)  # small copies are of the whole image, on white
            assert abs(image.convert("RGB").getpixel(middle)[0] - 7) <= 3
    (tmp_path / "images/1/9.png").unlink()
    for path in ("/api/thumb/9", "/api/image/9", "/api/thumb/44", "/api/image/44", f"/api/image/{10**15}"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/page/../server.py", "/page/..%2fserver.py", "/page/%2e%2e%2fserver.py", "/page/%2e%2e/%2e%2e/cli.py", "/page/",
     "/api/image/..%2f..%2fsecret", "/api/thumb/-1", "/api/thumb/0%2f..%2f..", "//etc/passwd", "/page/..%5cserver.py"],
)  # fmt: skip
def test_no_path_leads_out_of_the_page_and_the_images(client, path):
    assert 400 <= client.get(path).status_code < 500


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"action":"rename"}', '{"action":"burn","seen":0}', "\xff",
    '{"action":"rename","seen":0,"number":3,"name":""}', '{"action":"rename","seen":0,"number":"3","name":"x"}',
    '{"action":"move","seen":0,"rows":[],"to":3}', '{"action":"move","seen":0,"rows":[1e99],"to":3}',
    '{"action":"move","seen":0,"rows":[44],"to":3}', '{"action":"move","seen":0,"rows":[0],"to":3,"made":[9]}',
    '{"action":"rename","seen":0,"number":3,"name":"%s"}' % ("x" * 201), "[" * 5000, '{"action":"undo","seen":-1}',
    '{"action":"accept","seen":0,"number":3,"rows":[0]}', '{"action":"merge","seen":0,"numbers":[3,3]}',
    '{"action":"rename","seen":0,"number":3,"name":"   "}'],
)  # fmt: skip
def test_what_is_no_edit_is_a_client_error_and_writes_nothing(client, folder, body):
    answer = client.post("/api/edits", content=body.encode("latin-1"), headers={"content-type": "application/json"})
    assert 400 <= answer.status_code < 500
    assert answer.json()["detail"]
    assert not (folder / "edits.jsonl").exists()


def test_a_full_disk_is_told_and_the_edit_not_confirmed(client, folder, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        answer = say(client, "rename", number=FIRST, name="crab")
    assert answer.status_code == 503
    assert "No space left" in answer.json()["detail"]
    assert names(client)[FIRST] == "new-2"


@pytest.mark.parametrize("to", ["csv", "parquet", "folders", "coco", "fathomnet", "darwin-core"])
def test_the_page_exports_to_a_place_where_nothing_is(client, folder, to):
    say(client, "rename", number=FIRST, name="crab")
    places = [client.post("/api/export", json={"to": to}).json()["place"] for _ in range(2)]
    assert len({*places}) == 2
    for place in places:
        assert (folder / "exports").resolve() in [*type(folder)(place).resolve().parents]
        assert type(folder)(place).exists()


@pytest.mark.parametrize("to", ["../../x", "exe", "csv/../../x"])
def test_the_page_exports_to_no_other_place(client, folder, tmp_path, to):
    before = sorted(tmp_path.rglob("*"))
    assert client.post("/api/export", json={"to": to}).status_code == 422
    assert sorted(tmp_path.rglob("*")) == before


def test_the_page_knows_what_an_export_would_hold(client):
    plan = client.get("/api/export").json()
    assert sum(plan["folders"].values()) == 44
    assert "darwin-core" in plan["formats"]


def test_the_map_has_a_place_and_a_class_for_every_image(client):
    places, numbers = client.get("/api/map").json(), client.get("/api/map/classes").json()["numbers"]
    assert len(places["rows"]) == len(places["x"]) == len(places["y"]) == len(numbers) == 44


def test_the_page_itself_asks_for_nothing_from_elsewhere(client):
    for path in PAGE.iterdir():
        answer = client.get(f"/page/{path.name}")
        assert answer.status_code == 200
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text
        assert "innerHTML" not in text
        assert "insertAdjacentHTML" not in text
    assert client.get("/plotly.js").headers["content-type"].startswith("text/javascript")


def test_a_run_of_the_format_before_becomes_one_of_today_and_is_reviewed(tmp_path):
    from tests.discovery.made import make_found
    from tests.discovery.version_3 import write_version_3

    called = {"1": "crab", "2": "cat", "3": "new-4", "5": "new-1"}
    write_version_3(tmp_path, make_found(), [1, 2, 3, 2, 5], called)
    client = serve(tmp_path)
    assert say(client, "rename", number=1, name="lobster").status_code == 200
    assert json.loads((tmp_path / "discovery.json").read_text())["version"] == 4
    assert Discovery.load(tmp_path).classes.names[1] == "lobster"


def test_closing_writes_tables_of_what_was_said(folder):
    desk = Desk(folder)
    desk.say(lambda run: run.rename(FIRST, "crab"), 0)
    assert "crab" not in (folder / "classes.csv").read_text()
    desk.close()
    assert "crab" in (folder / "classes.csv").read_text()
    assert "crab" in (folder / "report.html").read_text()


def test_a_port_that_is_taken_is_told():
    with listen(0) as taken:
        taken.listen()
        with pytest.raises(InputError, match="Leave --port out"):
            listen(taken.getsockname()[1])
    with pytest.raises(InputError, match="cannot be had"):
        listen(70000)


def test_something_that_nobody_can_say_is_a_mistake_of_ours(folder):
    with pytest.raises(AssertionError):
        act(Discovery.load(folder), "burn")


@pytest.mark.parametrize("mode", [*schemathesis.GenerationMode])
def test_whatever_is_asked_the_server_does_not_fail(folder, mode):
    desk = Desk(folder)
    app = build_app(desk, Pictures(desk.run.found))
    described, answered = app.openapi(), set()
    app.get("/openapi.json")(lambda: described)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 12
    for operation in operations:

        @settings(max_examples=12, deadline=None, suppress_health_check=[*HealthCheck], derandomize=True, database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case):
            answer = case.call()
            assert answer.status_code < 500, answer.text
            answered.add(answer.status_code)

        try:
            ask()
        except Unsatisfiable:  # nothing that is asked without parameters can be asked wrongly
            assert mode is schemathesis.GenerationMode.NEGATIVE
    assert (200 if mode is schemathesis.GenerationMode.POSITIVE else 422) in answered


def test_the_server_does_not_hold_what_only_measures_need():
    check = "import sys, newfound.review.server; sys.exit('scipy.optimize' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
