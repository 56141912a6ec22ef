"""Who is refused: other sites, other names, those without the token, those who ask for too much."""

import pytest
from fastapi import FastAPI, Request
from starlette.testclient import TestClient

from newfound.review.guard import HEADERS, LARGEST, Guard, Rate

HOST, TOKEN = "127.0.0.1:8000", "the-token"


def serve(**rates):
    app = FastAPI()

    @app.api_route("/api/any", methods=["GET", "POST"])
    async def any_(request: Request):
        return {"bytes": len(await request.body())}

    @app.get("/")
    def index():
        return {}

    return TestClient(Guard(app, TOKEN, frozenset([HOST, "localhost:8000"]), **rates), base_url=f"http://{HOST}")


@pytest.fixture
def client():
    return serve()


def ask(client, path="/api/any", method="GET", **headers):
    return client.request(method, path, headers={"x-newfound-token": TOKEN, **headers}).status_code


def test_who_has_the_token_passes_by_either_name(client):
    assert ask(client) == ask(client, host="localhost:8000") == 200
    assert client.get(f"/api/any?token={TOKEN}").status_code == 200
    assert client.get("/").status_code == 200  # nothing of the run is in the page itself


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:8001", "127.0.0.1:8000.evil.example", ""]
)
def test_a_name_that_was_made_to_lead_here_is_refused(client, host):
    assert ask(client, host=host) == ask(client, "/", host=host) == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9", "https://127.0.0.1:8000"])
def test_requests_of_other_sites_are_refused(client, origin):
    assert ask(client, method="POST", origin=origin) == 403
    assert ask(client, origin=origin) == 403
    assert ask(client, origin=f"http://{HOST}") == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_that_a_browser_says_are_of_other_sites_are_refused(client, site):
    assert ask(client, **{"sec-fetch-site": site}) == 403
    assert ask(client, **{"sec-fetch-site": "same-origin"}) == 200


@pytest.mark.parametrize("token", ["", "the-toke", "the-token2", "THE-TOKEN", "tökén", "\x00"])
def test_without_the_token_nothing_is_told(client, token):
    sent = token.encode("utf-8") if token.isprintable() else b""
    assert client.get("/api/any", headers={"x-newfound-token": sent}).status_code == 401
    assert client.get("/api/any", params={"token": token}).status_code == 401
    assert client.get("/api/any").status_code == 401


def test_who_guesses_tokens_is_soon_not_answered_and_whoever_has_it_is():
    client = serve(strangers=Rate(0, 3))
    assert [client.get("/api/any").status_code for _ in range(5)] == [401, 401, 401, 429, 429]
    assert ask(client) == 200


def test_bodies_are_bounded_whatever_their_headers_say(client):
    def stream():
        for _ in range(LARGEST // 2**20 + 1):
            yield b" " * 2**20

    headers = {"x-newfound-token": TOKEN}
    assert client.post("/api/any", content=b" " * 1000, headers=headers).json() == {"bytes": 1000}
    assert client.post("/api/any", content=b" " * (LARGEST + 1), headers=headers).status_code == 413
    assert client.post("/api/any", content=stream(), headers=headers).status_code == 413
    for length in ("-1", "x", str(10**30)):
        assert ask(client, method="POST", **{"content-length": length}) == 413


def test_edits_are_bounded_apart_from_looking():
    client = serve(edits=Rate(0, 2))
    assert [ask(client, method="POST") for _ in range(3)] == [200, 200, 429]
    assert ask(client) == 200


def test_a_rate_lets_so_many_pass_at_once_and_so_many_in_a_second():
    now = [0.0]
    rate = Rate(2, 3, clock=lambda: now[0])
    assert [rate.allow() for _ in range(5)] == [True, True, True, False, False]
    now[0] = 1.0
    assert [rate.allow() for _ in range(3)] == [True, True, False]
    now[0] = 100.0
    assert [rate.allow() for _ in range(4)] == [True, True, True, False]


def test_every_answer_forbids_the_browser_what_the_page_does_not_need(client):
    for answer in (client.get("/"), client.get("/api/any"), client.get("/", headers={"host": "evil.example"})):
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "http" not in policy
