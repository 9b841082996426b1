#!/usr/bin/env python3
"""The page at / in a headless Chromium: a running federation over TLS, a server that goes away, a status token, and statuses that are as bad as can be.

    page.py BIN    the folder of the programs

Exits with 77, and says why, where there is no Chromium.
"""
import http.server
import json
import math
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import browser  # noqa: E402
from federation import Federation  # noqa: E402

MARKUP = '<img src=x onerror="window.broken=3"><b>bold</b>'
TOKEN = "0123456789abcdef0123456789abcdef"
READY = "document.querySelectorAll('#figures .figure').length > 0"
# The window is as wide as the page, nothing that was said has become markup, and no script of it ran.
STATE = """return {wide: document.documentElement.scrollWidth, window: innerWidth, parts: document.querySelectorAll("img, b.x, #main script, iframe, object, a").length,
  bold: [...document.querySelectorAll("#main b")].filter(b => !b.parentElement.classList.contains("figure")).length, broken: window.broken === undefined ? 0 : window.broken,
  text: document.getElementById("main").innerText, title: document.title}"""
POINTS = "return [...document.querySelectorAll(arguments[0] + ' circle')].filter(c => c.dataset.series === arguments[1]).map(c => [Number(c.dataset.x), Number(c.dataset.y)])"


def check(is_right, text):
    if not is_right:
        raise AssertionError(text)


def look(window, what):
    """The page's state, after it was found harmless."""
    state = window.run(STATE)
    check(state["parts"] == 0 and state["bold"] == 0 and state["broken"] == 0, "%s: markup got through: %s" % (what, state))
    check(state["wide"] <= state["window"], "%s: %d pixels wide in a window of %d" % (what, state["wide"], state["window"]))
    return state


def look_at_requests(window, origin, what):
    asked = [url for url in window.requests() if not url.startswith(("chrome:", "devtools:", "data:", "about:"))]
    check(asked and all(url.startswith(origin + "/") for url in asked), "%s: asked for %s" % (what, set(asked)))
    check(TOKEN not in "".join(asked), "%s: the token is in an address" % what)


def look_at_charts(window, status):
    """The points of the charts are the figures of the rounds."""
    for place, name, key in (("#accuracy", "test accuracy", "accuracy"), ("#loss", "test loss", "loss"), ("#bytes", "from devices", "bytes_up"), ("#seconds", "seconds", "wall_s")):
        points = window.run(POINTS, place, name)
        wanted = [[r["round"], r[key]] for r in status["rounds"]]
        check(points == wanted, "%s: %s, wanted %s" % (place, points, wanted))


def look_at_run(run):
    """While it runs and at its end, on a desk and on a phone."""
    windows = [browser.Browser(1280, 900), browser.Browser(400, 800, dark=True)]
    try:
        for window in windows:
            window.open(run.url + "/")
            check(window.wait(READY), "the page stays empty")
        run.run_devices()
        for window in windows:
            check(window.wait("document.querySelectorAll('#accuracy circle').length > 1", 120), "no points while it runs")
            state = look(window, "running")
            check("<img src=x" in state["text"] and "digits" in state["text"], "the model's name is not there as text: %s" % state["text"][:300])
        run.wait(lambda: run.fleet.poll() is not None, "the end of the fleet")
        run.wait(lambda: run.status()["state"] == "done", "the end of the run")
        for window in windows:
            check(window.wait("document.getElementById('state').textContent === 'done'"), "the page does not see the end")
            look(window, "done")
            look_at_charts(window, run.status())
            window.run("document.querySelector('#accuracy svg').focus()")
            window.call("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": [{"type": "keyDown", "value": "\ue012"}, {"type": "keyUp", "value": "\ue012"}]}]})
            text = window.run("return document.querySelector('#accuracy .read').textContent")
            check(text.startswith("round %d: test accuracy" % (len(run.status()["rounds"]) - 1)), "an arrow key reads out %r" % text)
            look_at_requests(window, run.url, "a run")
            check(window.complaints() == [], "the browser complains")
        look_at_silence(run, windows[0])
    finally:
        for window in windows:
            window.close()


def look_at_silence(run, window):
    """A server that is gone, and comes back."""
    run.stop_server()
    check(window.wait("!document.getElementById('silent').hidden && document.getElementById('silent').textContent.startsWith('No answer since ')"), "the page does not say that the server is gone")
    check("done" in look(window, "silent")["text"], "what was known is gone, too")
    run.start()
    check(window.wait("document.getElementById('silent').hidden"), "the page does not find the server again")


def look_at_token(run):
    """From elsewhere: the page asks for the token, sends it in a header, and forgets it."""
    window = browser.Browser(400, 800)
    try:
        window.devtools("Network.enable", {})
        window.devtools("Network.setExtraHTTPHeaders", {"headers": {"X-Forwarded-For": "203.0.113.9"}})
        window.open(run.url + "/")
        check(window.wait("!document.getElementById('ask').hidden"), "the page does not ask for the token")
        check("digits" not in look(window, "asking")["text"], "figures without a token")
        for secret, expected in ((TOKEN[::-1], "document.getElementById('ask-why').textContent.includes('did not take')"), (TOKEN, READY)):
            element = window.call("POST", "/element", {"using": "css selector", "value": "#token"})
            window.call("POST", "/element/%s/value" % next(iter(element.values())), {"text": secret + "\ue007"})
            check(window.wait(expected), "after the token %s: %s" % (secret, window.run("return document.getElementById('main').innerText")))
        check("digits" in look(window, "shown")["text"], "no figures with the token")
        check(window.run("return location.href") == run.url + "/" and window.run("return document.cookie + localStorage.length + sessionStorage.length") == "00", "the token is kept somewhere")
        look_at_requests(window, run.url, "with a token")
    finally:
        window.close()


def bad_status():
    """A thousand names of metrics with markup, very long names, what is missing, null, or of the wrong kind."""
    names = {"%s %d %s" % (MARKUP, i, "n" * 3000): i / 7 for i in range(1000)}
    rounds = [{"round": i + 1, "kind": MARKUP, "accuracy": (i % 10) / 10, "loss": 10.0 ** (i % 7 - 3), "participants": 3, "dropped": 0, "bytes_down": 1e15, "bytes_up": 0, "wall_s": 1e9,
               "failed": i % 50 == 3, "taken_back": 0, "reason": MARKUP * 40, "devices": {"loss": 1, MARKUP: 2}, "metrics": names if i == 299 else {}} for i in range(300)]
    rounds += [None, 7, {"round": "x"}, {"round": 301, "accuracy": None, "loss": None, "devices": None, "metrics": names, "closed_by": 5}]
    return {"state": MARKUP, "population": MARKUP * 100, "task": "t" * 20000, "model": MARKUP, "algorithm": MARKUP, "strategy": MARKUP, "error": MARKUP * 100, "rounds_wanted": 10 ** 9,
            "params": 1e300, "clients": {"known": 10 ** 12, "checked_in": MARKUP}, "open": {"round": 302, "is_open": True, "goal": 0, "accepted": 10 ** 6, "history": [[0, 0, 0], [1, 5], "x", [None, 3, 3]]},
            "simulated": {"hours": MARKUP, "begun_hours": "x", "by_hour": [{"ready": MARKUP}, None], "rounds": [{"round": 301, "dropped_by": 5, "energy_j": MARKUP}], "left_out": 7, "accuracy_round": MARKUP,
                          "energy_j": 1e300, "classes": [None, 5, {}] + [{"name": MARKUP * 30, "devices": "x", "assigned": 1e300, "accepted": None, "accepted_by_hour": [MARKUP, 1e12, None] * 30,
                                                                         "dropped_by": {MARKUP: MARKUP, "n" * 3000: 5}, "accuracy": 1e9}] * 300},
            "requests": [], "phases": {"accepted": 10 ** 9, MARKUP: 5}, "failures": [{"what": MARKUP, "reason": MARKUP, "n": 1, "last": MARKUP * 50}] * 1000 + [None], "rounds": rounds}


class Plain:
    """The page as the server gave it, policy and all, with statuses of our own."""

    def __init__(self, page, policy):
        self.answers = [{}, bad_status()]
        plain = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = page.encode() if self.path == "/" else plain.body()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8" if self.path == "/" else "application/json")
                self.send_header("Content-Security-Policy", policy)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        self.now = {}
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def body(self):
        return self.now if isinstance(self.now, bytes) else json.dumps(self.now).encode()

    def close(self):
        self.server.shutdown()


def look_at_bad_input(run):
    code, headers, page = run.get("/")
    check(code == 200, code)
    plain = Plain(page, headers["Content-Security-Policy"])
    window = browser.Browser(400, 800)
    try:
        plain.now = bad_status()
        window.open(plain.url + "/")
        check(window.wait(READY), "the page stays empty: %s" % window.complaints())
        state = look(window, "a thousand names")
        check("64 of 1,000 names" in state["text"] and MARKUP[:20] in state["text"], state["text"][:500])
        check(window.run("return document.querySelectorAll('#own-table tbody tr').length") == 64, "rows of names")
        check(window.run("return document.querySelectorAll('#rounds tbody tr').length") <= 40, "rows of rounds")
        check(len(window.run(POINTS, "#accuracy", "test accuracy")) == 300, "points of 300 rounds")
        check(len(state["text"]) < 120000 and len(state["title"]) < 400, "long names are not cut: %d" % len(state["text"]))
        check(not any("NaN" in part or "Infinity" in part for part in (state["text"], window.run("return document.getElementById('run').innerHTML"))), "a number that is none is shown")
        for status in ({}, [], None, 5, {"rounds": {}, "open": [], "clients": None, "failures": MARKUP}, b"{", b"", b"\xff\xfe", b"<html>"):
            plain.now = status
            window.open(plain.url + "/")
            check(window.wait("(%s) || !document.getElementById('silent').hidden" % READY), "%r: nothing is said" % (status,))
            look(window, status)
        plain.now = {"rounds": [{"round": i + 1, "accuracy": 0.5, "loss": math.pi} for i in range(3)]}
        check(window.wait("document.querySelectorAll('#accuracy circle').length === 3", 60), "the page does not go on after bad answers")
        errors = [text for text in window.complaints() if "Content Security Policy" in text or "Uncaught" in text]
        check(errors == [], errors)
    finally:
        window.close()
        plain.close()


def main():
    why = browser.missing()
    if why is not None:
        print("page.py: skipped: %s" % why)
        return 77
    run = Federation(sys.argv[1], rounds=5, options=["--status-token", "secret"])
    try:
        (run.folder / "secret").write_text(TOKEN + "\n")
        run.start()
        look_at_run(run)
        look_at_token(run)
        look_at_bad_input(run)
    finally:
        run.close()
    print("page.py: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
