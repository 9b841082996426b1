#!/usr/bin/env python3
"""/metrics and the log of a running federation: the text is read by a strict parser, again and again, and agrees with the status.

    metrics.py BIN    the folder of the programs
"""
import http.client
import pathlib
import re
import ssl
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import exposition  # noqa: E402
from federation import Federation  # noqa: E402

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z dunlin-server: (error: |warning: )?[a-z]+: [^\x00-\x1f\x7f]+")
HEAD = "# HELP m h\n# TYPE m gauge\n"
BAD = ["m 1", "m 1\n", HEAD + "m  1\n", HEAD + "m 1 \n", HEAD + "m\n", HEAD + "m one\n", HEAD + "n 1\n", HEAD + "\nm 1\n", HEAD + "m 1\nm 1\n", HEAD + 'm{a="b} 1\n', HEAD + 'm{a="\\x"} 1\n',
       HEAD + 'm{a="b",a="c"} 1\n', HEAD + 'm{a=b} 1\n', HEAD + 'm{a="b"}1\n', HEAD + 'm{1a="b"} 1\n', HEAD + HEAD + "m 1\n", HEAD + "# TYPE m gauge\n", "# HELP m h\nm 1\n",
       "# HELP m \\q\n# TYPE m gauge\n", "# HELP m h\n# TYPE m thing\n", HEAD + "# a comment\n", "# HELP m h\n# TYPE m counter\nm 1\n", "# HELP m_total h\n# TYPE m_total counter\nm_total -1\n",
       "# HELP m h\n# TYPE m histogram\nm_bucket{le=\"1\"} 2\nm_bucket{le=\"+Inf\"} 1\nm_sum 1\nm_count 1\n", "# HELP m h\n# TYPE m histogram\nm_bucket{le=\"1\"} 1\nm_sum 1\nm_count 1\n"]


def check(is_right, text):
    if not is_right:
        raise AssertionError(text)


def look_at_parser():
    """It refuses what is wrong, and reads what is right."""
    for text in BAD:
        try:
            exposition.read(text)
        except exposition.Wrong:
            continue
        raise AssertionError("the parser takes %r" % text)
    families = exposition.read(HEAD + 'm{a="x\\"\\\\\\n}",b=""} -1.5e-3\nm NaN\n')
    check(exposition.value(families, "m", a='x"\\\n}', b="") == -0.0015, families)


def scrape(run):
    code, headers, text = run.get("/metrics")
    check(code == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", "%s %s" % (code, headers))
    check(headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff", headers)
    return exposition.read(text)


def counters(families):
    return {key: value for family in families.values() if family.type == "counter" for key, value in family.samples.items()}


def look_at_counters(before, after):
    for key, value in counters(before).items():
        check(counters(after).get(key, -1) >= value, "%s went from %s to %s" % (key, value, counters(after).get(key)))


def look_at_end(run, families):
    status = run.status()
    at = lambda name, **labels: exposition.value(families, name, **labels)
    rounds = status["rounds"]
    check(at("dunlin_state", state="done") == 1 and at("dunlin_rounds_total", closed_by="goal") == len(rounds) == 4, rounds)
    check(at("dunlin_model_accuracy") == rounds[-1]["accuracy"] == status["final_accuracy"], "the accuracy is another")
    check(at("dunlin_model_loss") == rounds[-1]["loss"] and at("dunlin_model_round") == 4, "the loss is another")
    for name, mean in rounds[-1]["devices"].items():
        check(at("dunlin_device_mean", metric=name) == mean, name)
    check(at("dunlin_updates_total") == sum(r["participants"] for r in rounds) == 12, "updates")
    check(at("dunlin_round_bytes_total", direction="up") == sum(r["bytes_up"] for r in rounds), "bytes")
    check(at("dunlin_round_duration_seconds_count") == 4, "durations")
    check(abs(at("dunlin_round_duration_seconds_sum") - sum(r["wall_s"] for r in rounds)) < 1e-6, "their sum")
    phases = {dict(labels)["phase"]: value for (_, labels), value in families["dunlin_devices"].samples.items()}
    check(phases == status["phases"] and sum(phases.values()) == at("dunlin_devices_known") == status["clients"]["known"], phases)
    check(at("dunlin_task_info", population="phones", task="digits", model=run.model, algorithm="fedavg", strategy="average") == 1, "the odd name")
    check(at("dunlin_enrolments_total", by="first") == 6 and at("dunlin_commits_total", outcome="accepted") == 12, "events")
    check(at("dunlin_requests_total", call="enrol", result="ok") == 6 and at("dunlin_requests_total", call="commit", result="ok") == 12, "requests")
    check(0 < at("process_resident_memory_bytes") < 2 ** 31 and 0 < at("process_cpu_seconds_total") < 1000, "the process")
    check(abs(at("process_start_time_seconds") - time.time()) < 3600 and 0 < at("process_open_fds") <= at("process_max_fds"), "the process")


def look_at_log(text):
    lines = text.splitlines()
    for line in lines:
        check(LINE.fullmatch(line), "a line of the log: %r" % line)
    for what in ["is taken, by coming first", "round 1 of 4 is open", "round 1 closed", "round 4: accuracy", "refused: enrol, invalid (400)"]:
        check(what in text, "%r is not in the log:\n%s" % (what, text))
    check(sum("is taken" in line for line in lines) == 6, "each enrolment has a line")


def knock(url, headers):
    """A request to enrol that is none, from somebody who trusts any server."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(urllib.parse.urlsplit(url).netloc, timeout=60, context=context)
    connection.request("POST", "/v1/populations/phones:enrol", b"x", headers)
    check(connection.getresponse().status >= 400, "a stranger is refused")
    connection.close()


def main():
    look_at_parser()
    run = Federation(sys.argv[1], rounds=4)
    try:
        run.start()
        families = scrape(run)
        # A stranger with a name for a terminal: refused, counted, and harmless in the log.
        knock(run.url, {"Dunlin-Protocol": "1", "Dunlin-Device": "\x1b[2J<b>"})
        run.run_devices()
        while run.fleet.poll() is None:
            now = scrape(run)
            look_at_counters(families, now)
            families = now
            time.sleep(0.2)
        check(run.fleet.returncode == 0, (run.folder / "fleet.log").read_text())
        now = scrape(run)
        look_at_counters(families, now)
        look_at_end(run, now)
        check(exposition.value(now, "dunlin_requests_total", call="enrol", result="invalid") == 1, "the refusal is not counted")
        code, _, text = run.get("/metrics", X_Forwarded_For="203.0.113.9")
        check(code == 403 and "dunlin_" not in text, text)
        run.stop_server()
        look_at_log(run.log())
    finally:
        run.close()
    print("metrics.py: ok, %d families" % len(families))


if __name__ == "__main__":
    main()
