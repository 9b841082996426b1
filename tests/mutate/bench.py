"""The copy of the tree in which changes are tried: its builds, its unchanged programs, and what a run of a program says.

Both builds have the flags of a preset and lie as deep in the copy as that preset's folder in the tree, so a compiler cache
that is in use has nearly every file already. Of each unchanged program a copy stays beside it, so a failure can be held
against it at once: a change is seen by a test that fails with it, fails again, and passes without it.
"""

import hashlib
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# A build's preset, and the processor seconds that one test may take; the slowest of the others take a tenth of them.
BUILDS = {"quick": ("release", 60), "sanitized": ("asan", 240)}
TIMES = {"test_plans": 20, "test_expected_plans": 10, "test_optimum": 4, "test_monotone": 10}
# A test that waits for what never comes takes no processor time: seconds of the clock, for a machine with much else to do.
WAIT_S = 600
WHOLE_PROGRAM_S = 7200


def processor_seconds():
    """What the commands that this process started and waited for have taken until now."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


class Bench:
    def __init__(self, folder):
        self.folder = folder
        self.tree = folder / "tree"
        self.configured = set()
        self.digests = {}  # (build, program): of the unchanged program
        self.sound = set()  # (build, program, cases, test) that pass unchanged
        self.unsound = {}  # (build, program, cases): tests that do not, and are left out
        self.seconds = {}  # (build, program, cases): what each test took in the first whole run that passed
        self.original = None  # (file, content) while a change stands in it

    def copy_tree(self):
        """Brings the copy up to date; files that are the same keep their time, so little is built again."""
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        for name in names.decode().split("\0"):
            source, target = ROOT / name, self.tree / name
            if not name or not source.is_file():
                continue
            content = source.read_bytes()
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            os.chmod(target, source.stat().st_mode & 0o777)

    def where(self, build):
        return self.tree / "build" / BUILDS[build][0]

    def path(self, build, program, is_unchanged=False):
        return self.where(build) / "tests" / (program + (".unchanged" if is_unchanged else ""))

    def make(self, build, program):
        """True if it could be built."""
        with open(self.folder / "build.log", "w") as log:
            if build not in self.configured:
                command = ["cmake", "--preset", BUILDS[build][0]]
                subprocess.run(command, cwd=self.tree, check=True, stdout=log)
                self.configured.add(build)
            command = ["ninja", "-C", self.where(build), "-j1", program]
            return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode == 0

    def digest(self, build, program):
        return hashlib.sha256(self.path(build, program).read_bytes()).hexdigest()

    def longest(self, key):
        """The few tests that take half of the program's time, as far as that is known."""
        seconds = self.seconds.get(key, {})
        left = 0.5 * sum(seconds.values())
        found = []
        for test in sorted(seconds, key=seconds.get, reverse=True):
            if left <= 0.0 or len(found) >= len(seconds) // 4:
                break
            left -= seconds[test]
            found.append(test)
        return found

    def run(self, build, program, cases, test=None, is_unchanged=False, is_brief=False):
        """The name of the test that failed first, "" if none did, None if no test was named. What it started ends with it.
        A brief run leaves out the tests that take longest."""
        key = (build, program, cases)
        report = self.folder / "report.tap"
        report.unlink(missing_ok=True)
        command = [self.path(build, program, is_unchanged), "-j1", "--fail-fast", "--timeout", str(WAIT_S), f"--tap={report}"]
        environment = dict(os.environ, DUNLIN_CASES=cases, ASAN_OPTIONS="abort_on_error=1:detect_leaks=1:detect_stack_use_after_return=0")
        environment["LSAN_OPTIONS"] = f"suppressions={self.tree}/tests/support/leaks.supp:print_suppressions=0"
        left_out = self.unsound.get(key, []) + (self.longest(key) if is_brief else [])
        pattern = test or ("!(" + "|".join(left_out) + ")" if left_out else "*")
        limit_s = BUILDS[build][1] * TIMES.get(program, 1)
        child = subprocess.Popen(
            [*command, "--filter", pattern.replace("::", "/")],
            cwd=self.where(build) / "tests",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5)),
        )
        try:
            if child.wait(WHOLE_PROGRAM_S) == 0:
                if pattern == "*" and key not in self.seconds:
                    text = report.read_text(errors="replace")
                    times = re.findall(r"^ok - (\S+?) +\(([0-9.]+)s\)", text, re.M)
                    self.seconds[key] = {name: float(seconds) for name, seconds in times}
                return ""
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        text = report.read_text(errors="replace") if report.is_file() else ""
        failed = re.search(r"^not ok - (\S+?)(?:\s|$)", text, re.M)
        return failed.group(1) if failed else None

    def restore(self):
        """The tree without a change."""
        if self.original is not None:
            file, content = self.original
            (self.tree / file).write_bytes(content)
            self.original = None

    def change(self, mutation):
        """The tree with this change; nothing is written, and so nothing built again, where it stands already."""
        if self.original is not None:
            return
        target = self.tree / mutation.file
        content = target.read_bytes()
        lines = content.decode().split("\n")
        assert lines[mutation.line - 1] == mutation.before, f"{mutation.file} has changed on the way"
        lines[mutation.line - 1] = mutation.after
        self.original = (mutation.file, content)
        target.write_bytes("\n".join(lines).encode())

    def prepare(self, build, program):
        """Digest of the unchanged program, of which a copy stays beside it."""
        if (build, program) not in self.digests:
            self.restore()
            if not self.make(build, program):
                sys.exit(f"mutate.py: {program} does not build; see {self.folder}/build.log")
            shutil.copy2(self.path(build, program), self.path(build, program, True))
            self.digests[build, program] = self.digest(build, program)
        return self.digests[build, program]

    def is_sound(self, build, program, cases, test):
        """Whether the test passes with the unchanged program; one that does not is left out from then on."""
        key = (build, program, cases)
        if (*key, test) not in self.sound:
            if self.run(*key, test, True) == "":
                self.sound.add((*key, test))
            else:
                print(f"{program} {test or ''}: fails before anything is changed ({build}, {cases} of its cases)", flush=True)
                self.unsound.setdefault(key, []).append(test or "*")
        return (*key, test) in self.sound

    def failing_test(self, build, program, cases, is_brief):
        """The test by which the changed program differs from the unchanged one, "" if there is none."""
        n_trials = 0
        while True:
            test = self.run(build, program, cases, is_brief=is_brief)
            if test == "":
                return ""
            # Once more, alone: on a busy machine a test of threads or of a network may fail that is no matter of the change.
            n_trials += 1
            if n_trials < 3 and self.run(build, program, cases, test) == "":
                continue
            if self.is_sound(build, program, cases, test):
                return test or program

    def try_in(self, build, cases, is_brief, mutation, programs):
        """Result, the test that saw it, and the programs that the change makes others, of one pass."""
        differing = []
        try:
            for program in programs:
                unchanged = self.prepare(build, program)
                self.change(mutation)
                if not self.make(build, program):
                    return "invalid", "", differing
                if self.digest(build, program) == unchanged:
                    continue
                differing.append(program)
                test = self.failing_test(build, program, cases, is_brief)
                if test:
                    return "killed", f"{program} {test}", differing
            return "survived", "", differing
        finally:
            self.restore()
