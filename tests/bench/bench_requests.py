#!/usr/bin/python3
"""What a request, an enrolment and a download cost, servers and clients together.

bench_requests.py BUILD [requests|enrol|transfer|calls]... [--csv FILE] [--work FOLDER] [--devices N] [--threads N] [--turns N] [--other BIN]

requests  the README's run of 1,000 devices: processor time of both processes for a request. The server has no test set, so
          nothing is evaluated; what training takes is found by a second run with eleven times the epochs, and subtracted.
enrol     so many devices (10,000): wall time until all have enrolled and checked in, with the state on a disk
transfer  94 MB in 360 objects over one connection with TLS 1.3: one curl client on this server and on nginx by turns (nginx is left
          out where there is none), and the client of the library, which checks each object and stores it
calls     the server's processor time of a call with 1,000, 10,000 and 60,000 devices (bench_calls)

--other takes dunlin-server and dunlin-fleet of another build, to compare with. A row a figure is added to FILE.
"""
import argparse
import csv
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
MODEL_BYTES, CHUNK_BYTES = 94326568, 262144
CIPHER = "TLS_AES_256_GCM_SHA384"
COLUMNS = ["what", "case", "value", "unit", "load", "processor", "commit", "date"]
TICK = os.sysconf("SC_CLK_TCK")


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.*)$", text, re.M)
    return found.group(1) if found else platform.processor()


def commit():
    done = subprocess.run(["git", "-C", str(HERE), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


class Rows:
    """Prints each figure, and adds it to a file."""

    def __init__(self, path):
        self.path = path and pathlib.Path(path)
        self.about = [processor(), commit(), datetime.date.today().isoformat()]

    def add(self, what, case, value, unit):
        value = "%.4g" % value if isinstance(value, float) else str(value)
        print("%-10s %-44s %10s %s" % (what, case, value, unit), flush=True)
        if self.path is None:
            return
        is_new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if is_new:
                writer.writerow(COLUMNS)
            writer.writerow([what, case, value, unit, "%.1f" % os.getloadavg()[0], *self.about])


def processor_s(pid):
    """User and system time of a process and its children."""
    total = 0.0
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(entry.name) == pid or int(fields[1]) == pid:
            total += (int(fields[11]) + int(fields[12])) / TICK
    return total


class Server:
    def __init__(self, binaries, folder, task, flags=(), threads=2):
        folder.mkdir(parents=True)
        self.folder, self.state = folder, folder / "state"
        (folder / "task.json").write_text(json.dumps(task))
        port = folder / "port"
        self.process = subprocess.Popen(
            [binaries / "dunlin-server", "--listen", "127.0.0.1:0", "--port-file", port, "--state", self.state, "--task",
             folder / "task.json", "--threads", str(threads), "--log", "error", *flags])  # fmt: skip
        while not port.exists() or not port.read_text().strip():
            if self.process.poll() is not None:
                sys.exit("bench_requests: the server ended")
            time.sleep(0.05)
        self.url = "https://127.0.0.1:%s" % port.read_text().strip()
        self.trust = ssl.create_default_context(cafile=self.state / "ca.pem")

    def status(self):
        with urllib.request.urlopen(self.url + "/v1/status", context=self.trust, timeout=30) as answer:
            return json.load(answer)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        shutil.rmtree(self.folder)


def fleet_task(clients, cohort, rounds, epochs):
    plan = {"epochs": epochs, "batch": 12, "lr": 0.02, "momentum": 0.9}
    return {"population": "fleet", "task": "train", "model": "lenet5", "image": 28, "channels": 1, "classes": 10,
            "rounds": rounds, "cohort": cohort, "clients": clients, "deadline_s": 600, "seed": 1, "plan": plan}  # fmt: skip


def fleet_command(binaries, server, clients, rounds):
    return [binaries / "dunlin-fleet", "--server", server.url, "--ca", server.state / "ca.pem", "--clients", str(clients),
            "--rounds", str(rounds), "--dataset", "synthetic", "--batch", "12", "--json", server.folder / "out.json"]  # fmt: skip


def fleet_run(binaries, work, epochs):
    """Processor seconds of the server and of the fleet, and the number of requests."""
    server = Server(binaries, work / "requests", fleet_task(1000, 50, 5, epochs), ["--windows", "1:2050"])
    before = processor_s(server.process.pid)
    usage = os.times()
    done = subprocess.run(fleet_command(binaries, server, 1000, 5), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("bench_requests: " + done.stderr)
    after = os.times()
    fleet_s = after.children_user + after.children_system - usage.children_user - usage.children_system
    server_s = processor_s(server.process.pid) - before
    requests = json.loads((server.folder / "out.json").read_text())["fleet"]["requests"]
    server.end()
    return server_s, fleet_s, requests


def requests(options, rows, name, binaries):
    server_s, fleet_s, n = fleet_run(binaries, options.work, 1)
    more_server_s, more_fleet_s, more_n = fleet_run(binaries, options.work, 11)
    whole_s = server_s + fleet_s
    # The second run's requests are more, and cost as much as the first one's.
    training_s = max(0.0, (more_server_s + more_fleet_s - whole_s * more_n / n) / (11 - more_n / n))
    rows.add("requests", name + ": requests", n, "")
    rows.add("requests", name + ": server", server_s, "s")
    rows.add("requests", name + ": fleet", fleet_s, "s")
    rows.add("requests", name + ": training, of it", training_s, "s")
    rows.add("requests", name + ": a request, nothing subtracted", 1000 * whole_s / n, "ms")
    rows.add("requests", name + ": a request", 1000 * (whole_s - training_s) / n, "ms")


def enrol(options, rows, name, binaries):
    n = options.devices
    kind = subprocess.run(["stat", "-f", "-c", "%T", options.work], capture_output=True, text=True).stdout.strip()
    if kind == "tmpfs":
        sys.exit("bench_requests: %s is in memory; --work has to name a folder on a disk" % options.work)
    threads = options.threads
    server = Server(binaries, options.work / "enrol", fleet_task(n, 50, 1, 1), ["--windows", "1:%d" % (50 + 2 * n)], threads)
    command = [*fleet_command(binaries, server, n, 1), "--threads", str(threads)]
    fleet = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    begin = None
    while True:
        status = server.status()
        if begin is None and status["requests"]["total"] > 1:
            begin = time.monotonic()
        if status["clients"]["checked_in"] >= n or fleet.poll() is not None:
            break
        time.sleep(0.1)
    wall_s = time.monotonic() - begin
    total = status["requests"]["total"]
    spent_s = processor_s(server.process.pid) + processor_s(fleet.pid)
    fleet.terminate()
    fleet.wait()
    server.end()
    if status["clients"]["checked_in"] < n:
        sys.exit("bench_requests: the fleet ended before all had checked in")
    rows.add("enrol", "%s: %d devices, %d threads each, %s" % (name, n, threads, kind), wall_s, "s")
    rows.add("enrol", "%s: %d devices, processor time a request" % (name, n), 1000 * spent_s / total, "ms")


def start_nginx(folder, state, names):
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        return None, None
    port = 20000 + os.getpid() % 20000
    temporary = "".join("%s_temp_path %s/t;" % (kind, folder) for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        "worker_processes 1; daemon off; master_process off; pid %s/pid; error_log %s/errors; events { worker_connections 64; }\n"
        "http { access_log off; sendfile on; keepalive_requests 100000; types { } default_type application/octet-stream; %s\n"
        "server { listen 127.0.0.1:%d ssl; ssl_certificate %s/server.pem; ssl_certificate_key %s/server.key;"
        " ssl_protocols TLSv1.3; root %s/www; } }\n" % (folder, folder, temporary, port, state, state, folder))  # fmt: skip
    process = subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL)
    time.sleep(1)
    return process, "https://127.0.0.1:%d" % port


def download(url, trust, names, list_file):
    """Bytes a second of one curl over one connection."""
    list_file.write_text("".join('url = "%s/v1/objects/%s"\noutput = "/dev/null"\n' % (url, name) for name in names))
    command = ["curl", "-s", "--http1.1", "--tlsv1.3", "--tls13-ciphers", CIPHER, "--cacert", trust, "-H",
               "Dunlin-Protocol: 1", "-K", list_file, "-w", "%{size_download} %{http_code} %{num_connects}\n"]  # fmt: skip
    begin = time.monotonic()
    answers = subprocess.run(command, capture_output=True, text=True).stdout.split("\n")[:-1]
    wall_s = time.monotonic() - begin
    fields = [line.split() for line in answers]
    if sum(int(f[0]) for f in fields) != MODEL_BYTES or {f[1] for f in fields} != {"200"} or sum(int(f[2]) for f in fields) != 1:
        sys.exit("bench_requests: %s did not send the model over one connection" % url)
    return MODEL_BYTES / wall_s / 1e6


def median(values):
    return sorted(values)[len(values) // 2]


def transfer(options, rows, name, binaries):
    floats = bytearray(os.urandom(MODEL_BYTES))
    floats[3::4] = b"\x3c" * (MODEL_BYTES // 4)  # none of them infinite
    initial = options.work / "initial"
    initial.write_bytes(floats)
    task = {"population": "phones", "task": "transfer", "rounds": 1, "cohort": 9, "initial": str(initial),
            "tensors": [{"name": "weights", "shape": [MODEL_BYTES // 4]}]}  # fmt: skip
    server = Server(binaries, options.work / "transfer", task)
    objects = server.folder / "www" / "v1" / "objects"
    objects.mkdir(parents=True)
    names = []
    for first in range(0, MODEL_BYTES, CHUNK_BYTES):
        chunk = floats[first : first + CHUNK_BYTES]
        names.append(hashlib.sha256(chunk).hexdigest())
        (objects / names[-1]).write_bytes(chunk)
    nginx, nginx_url = start_nginx(server.folder, server.state, names)
    trust = server.state / "ca.pem"
    ours, theirs, client = [], [], []
    bench = options.build / "bin" / "bench_client"
    for turn in range(options.turns):
        ours.append(download(server.url, trust, names, server.folder / "list"))
        if nginx is not None:
            theirs.append(download(nginx_url, trust, names, server.folder / "list"))
        if bench.exists():
            store = server.folder / ("store-%d" % turn)
            line = subprocess.run([bench, server.url, trust, server.state / "signing.pub", store], capture_output=True, text=True)
            if line.returncode == 0:
                client.append(MODEL_BYTES / json.loads(line.stdout)["load_ms"] / 1e3)
            shutil.rmtree(store, ignore_errors=True)
    if nginx is not None:
        nginx.terminate()
        nginx.wait()
        rows.add("transfer", name + ": nginx, median of %d" % len(theirs), median(theirs), "MB/s")
        rows.add("transfer", name + ": nginx, best", max(theirs), "MB/s")
    server.end()
    initial.unlink()
    rows.add("transfer", name + ": curl, median of %d" % len(ours), median(ours), "MB/s")
    rows.add("transfer", name + ": curl, best", max(ours), "MB/s")
    if theirs:
        rows.add("transfer", name + ": of nginx's rate, median of ratios", median([a / b for a, b in zip(ours, theirs)]), "")
    if client:
        rows.add("transfer", name + ": our client, checked and stored, median", median(client), "MB/s")


def calls(options, rows, name, binaries):
    done = subprocess.run([options.build / "bin" / "bench_calls", "1000", "10000", "60000"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("bench_requests: " + done.stderr)
    for row in csv.DictReader(done.stdout.splitlines()):
        for what in ("enrol", "checkin"):
            rows.add("calls", "%s: %s of %s, by %s" % (name, what, row["devices"], row["place"]), float(row[what + "_ms"]), "ms")


PARTS = {"requests": requests, "enrol": enrol, "transfer": transfer, "calls": calls}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--csv")
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--devices", type=int, default=10000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--other", type=pathlib.Path)
    options = parser.parse_args()
    options.build = options.build.resolve()
    rows = Rows(options.csv)
    with tempfile.TemporaryDirectory(dir=options.work or options.build) as folder:
        options.work = pathlib.Path(folder).resolve()
        for part in options.parts or PARTS:
            if options.other is not None and part != "calls":
                PARTS[part](options, rows, "before", options.other.resolve())
            PARTS[part](options, rows, "now", options.build / "bin")


if __name__ == "__main__":
    main()
