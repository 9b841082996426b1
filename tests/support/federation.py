"""A dunlin-server and fleets of devices as child processes, in a folder of their own."""

import json
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

PATIENCE_S = 60

# A file name that breaks whatever does not escape: quotes, a backslash, a line feed, and markup that would run.
ODD_NAME = 'odd "name" \\n\n<img src=x onerror=window.broken=1><script>window.broken=2<.onnx'


class Federation:
    def __init__(self, programs, rounds, devices=6, options=(), model=ODD_NAME):
        self.programs = pathlib.Path(programs).resolve()
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.options = list(options)
        self.devices = devices
        self.fleet = self.server = None
        self.port = 0
        subprocess.run([self.programs / "dunlin-train", "--model", "lenet5", "--writers", "4", "--steps", "1", "--save", "net.onnx"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        shutil.move(self.folder / "net.onnx", self.folder / model)
        self.model = str(self.folder / model)
        task = {"population": "phones", "task": "digits", "model": self.model, "rounds": rounds, "cohort": 3, "clients": devices, "deadline_s": 60, "seed": 3,
                "plan": {"epochs": 1, "batch": 8, "lr": 0.05, "momentum": 0.9, "evaluate": True}}
        (self.folder / "task.json").write_text(json.dumps(task))

    def start(self):
        """On the same port as before, if there was one."""
        (self.folder / "port").unlink(missing_ok=True)
        with open(self.folder / "server.log", "ab") as log:
            self.server = subprocess.Popen([self.programs / "dunlin-server", "--listen", "127.0.0.1:%d" % self.port, "--port-file", "port", "--state", "state", "--task", "task.json",
                                            "--windows", "1:20", "--test-set", "synthetic", *self.options], cwd=self.folder, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE_S
        while not (self.folder / "port").exists() or not (self.folder / "port").read_text():
            if self.server.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the server did not start: " + self.log())
            time.sleep(0.05)
        self.port = int((self.folder / "port").read_text())
        self.url = "https://127.0.0.1:%d" % self.port

    def run_devices(self):
        with open(self.folder / "fleet.log", "wb") as log:
            self.fleet = subprocess.Popen([self.programs / "dunlin-fleet", "--server", self.url, "--ca", "state/ca.pem", "--population", "phones", "--clients", str(self.devices),
                                           "--dataset", "synthetic", "--max-examples", "600", "--batch", "8", "--retry-ms", "50:200", "--evaluate"], cwd=self.folder, stdout=log, stderr=log)

    def stop_server(self):
        self.server.send_signal(signal.SIGTERM)
        self.server.wait()

    def log(self):
        return (self.folder / "server.log").read_text(errors="replace")

    def get(self, path, **headers):
        """Status code, headers and text."""
        context = ssl.create_default_context(cafile=str(self.folder / "state/ca.pem"))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        request = urllib.request.Request(self.url + path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def status(self):
        return json.loads(self.get("/v1/status")[2])

    def wait(self, is_true, what):
        end = time.monotonic() + 4 * PATIENCE_S
        while time.monotonic() < end:
            if is_true():
                return
            time.sleep(0.1)
        raise RuntimeError("in vain: %s\n%s\n%s" % (what, self.log()[-3000:], (self.folder / "fleet.log").read_text()[-2000:]))

    def close(self):
        for process in (self.fleet, self.server):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
