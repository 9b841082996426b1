"""A headless Chromium that is driven by WebDriver (W3C), without a library: pages, scripts, what it asked for, pictures."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request


def missing():
    """Why there is no browser; None if there is one."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return "%s is not installed (Debian: apt-get install chromium chromium-driver)" % program
    return None


class Browser:
    """One window. Its profile is a folder of its own; certificates are not checked: what is tested is the page."""

    def __init__(self, width, height, dark=False):
        self.folder = tempfile.mkdtemp()
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.session = None
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                self.url = "http://127.0.0.1:%d" % int(line.rstrip().rstrip(".").rsplit(" ", 1)[1])
                break
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + self.folder, "--disable-background-networking", "--disable-component-update",
                     "--no-first-run", "--hide-scrollbars", "--force-prefers-reduced-motion", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--window-size=%d,%d" % (width, height)]
        wanted = {"browserName": "chrome", "acceptInsecureCerts": True, "goog:chromeOptions": {"args": arguments},
                  "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"}}
        self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        # A headless window is never narrower than 500 pixels; a device of that size is.
        self.devtools("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        self.devtools("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def call(self, method, path, body=None):
        if self.session is not None:
            path = "/session/" + self.session + path
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError("%s %s: %s" % (method, path, error.read().decode()[:2000])) from error

    def devtools(self, command, parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """The value of a function's body."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script, patience_s=30):
        """Until the expression is true; its value. None if it never was."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            value = self.run("return " + script)
            if value:
                return value
            time.sleep(0.1)
        return None

    def requests(self):
        """The addresses that were asked for since the last call."""
        found = []
        for entry in self.call("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found

    def complaints(self):
        """What the browser's console has said since the last call."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def picture(self, path):
        """The whole page, as PNG."""
        size = self.devtools("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.devtools("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})["data"]
        with open(path, "wb") as out:
            out.write(base64.b64decode(data))

    def close(self):
        try:
            if self.session is not None:
                self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.driver.stdout.close()
            shutil.rmtree(self.folder, ignore_errors=True)
