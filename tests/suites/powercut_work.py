#!/usr/bin/env python3
"""What is done on a mount until the power is cut, and what must be left of it: powercut_work.py prepare|work|check

For powercut.sh, with LEASEHOLD, the program, beside its MNT, OUT and FM. `work` does all at once that the table of
docs/SEMANTICS.md section 10 promises something about, each in a thread of its own, so that the full commits of one come
right after the closes of another; in one round of four with `close = "durable"`. A thread notes each step in its own witness log in OUT, which is synced before the
next step: `try` with the digest of what it is about to save, and `ack` with the time when it was answered and how it
is promised: at once (`now`), or within a second (`soon`). `check` mounts again and compares.

With LIE=1 the mount and the commands run under strace, which answers each sync with success and does none: `check` must
find losses.
"""

import hashlib
import json
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time

LEASEHOLD = os.environ["LEASEHOLD"]
MNT, OUT, FM = (os.environ[name] for name in ("MNT", "OUT", "FM"))
WORKSPACE = f"{MNT}/ws"
HOLDER = "ada@cut"
WHO = ["--as", "ada", "--checkout", "cut"]
STORES = [["-w", WORKSPACE], ["--objects", f"{MNT}/blobs"]]
DURABLE = f"{OUT}/durable"  # There where `close = "durable"`: all is promised at once.
SECOND = 1.0
PAGE = 4096
LIVE_PAGES = 32
MIXED = [f"mixed-{number}" for number in range(6)]
LEASED = 60
LARGEST = 160 * 1024
LIE = ["strace", "-f", "-qq", "-o", "/dev/null", "--inject=fsync,fdatasync,syncfs:retval=0"]


def content(*seed, size=None):
    """Bytes that nothing else has: of a size that differs from save to save, and no block twice."""
    source = random.Random("/".join(map(str, seed)))
    return source.randbytes(size or source.randint(1, LARGEST))


def digest(data):
    return hashlib.sha256(data).hexdigest()


def command(*arguments):
    lie = LIE if os.environ.get("LIE") and sys.argv[1] == "work" else []
    return [*lie, LEASEHOLD, *arguments]


def run(*arguments):
    """Runs a command of leasehold, and returns what it printed as JSON."""
    status, printed, told = RUNNERS.apply(run_apart, arguments) if RUNNERS else run_apart(*arguments)
    if status != 0:
        raise subprocess.CalledProcessError(status, arguments, printed, told)
    return json.loads(printed)


def run_apart(*arguments):
    done = subprocess.run(command(*arguments, "--json"), capture_output=True)
    return done.returncode, done.stdout, done.stderr


# While files are open, commands are run by processes that were there before: a child that is forked has all descriptors,
# and closes them before it runs the command, which the mount takes for the end of a save.
RUNNERS = None


def start_mount():
    log = open(f"{OUT}/mount-{sys.argv[1]}.log", "ab")
    mount = subprocess.Popen(command("mount", WORKSPACE, FM, *WHO, "--foreground"), stdout=log, stderr=log)
    deadline = time.monotonic() + 30
    while not os.path.ismount(FM):
        if mount.poll() is not None or time.monotonic() > deadline:
            sys.exit("LOST the mount: it doesn't start")
        time.sleep(0.01)
    return mount


# ---- prepare


def prepare():
    seed = f"{OUT}/docs"
    os.makedirs(f"{seed}/leased")
    for name in [*MIXED, "hot", "versions", "reverted"]:
        write(f"{seed}/{name}.doc", content(name, 0))
    for number in range(LEASED):
        write(f"{seed}/leased/{number}.doc", b"leased")
    write(f"{seed}/live.db", b"".join(live_page(page, 0) for page in range(LIVE_PAGES)))
    run("init", WORKSPACE)
    if random.random() < 0.25:
        write(f"{WORKSPACE}/.leasehold/config.toml", b'close = "durable"\n')
        write(DURABLE, b"")
    run("import", seed, "-m", "seed", "-w", WORKSPACE, *WHO)


def live_page(page, turn):
    return content("live", page, turn, size=PAGE)


def write(path, data, sync=False, flags=os.O_CREAT | os.O_TRUNC):
    file = os.open(path, os.O_WRONLY | flags, 0o644)
    try:
        os.write(file, data)
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


# ---- work


class Witness:
    """The log of one thread."""

    def __init__(self, name):
        self.file = os.open(f"{OUT}/witness-{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, **step):
        os.write(self.file, (json.dumps(step) + "\n").encode())
        os.fsync(self.file)

    def trying(self, what, turn, data):
        self.note(step="try", what=what, turn=turn, digest=digest(data))

    def answered(self, what, turn, promise, **more):
        self.note(step="ack", what=what, turn=turn, promise=promise, at=time.monotonic(), **more)


class Document:
    """A file on the mount, saved again and again, each time in one of the ways that applications have."""

    def __init__(self, witness, name):
        self.witness, self.name, self.turn = witness, name, 0
        self.path = f"{FM}/docs/{name}.doc"
        self.data = content(name, 0)

    def save(self, way):
        self.turn += 1
        data = self.patched() if way == self.patch else content(self.name, self.turn)
        self.witness.trying(self.name, self.turn, data)
        promise = way(data)
        self.witness.answered(self.name, self.turn, promise)
        self.data = data

    def patched(self):
        """The last save with some other bytes in two places."""
        data = bytearray(self.data)
        for place in (random.randrange(len(data)), random.randrange(len(data))):
            new = content(self.name, self.turn, place, size=64)
            data[place : place + 64] = new[: len(data) - place]
        return bytes(data)

    def in_place(self, data):
        write(self.path, data)
        return "soon"

    def in_place_synced(self, data):
        write(self.path, data, sync=True)
        return "now"

    def patch(self, data):
        file = os.open(self.path, os.O_WRONLY)
        for start in range(0, len(data), PAGE):
            if data[start : start + PAGE] != self.data[start : start + PAGE]:
                os.pwrite(file, data[start : start + PAGE], start)
        os.close(file)
        return "soon"

    def renamed(self, data, sync=False):
        temporary = f"{FM}/docs/.{self.name}.doc.tmp"
        write(temporary, data, sync)
        os.rename(temporary, self.path)
        return "soon"

    def renamed_synced(self, data):
        return self.renamed(data, sync=True)

    def renamed_with_name(self, data):
        self.renamed(data, sync=True)
        sync_directory(f"{FM}/docs")
        return "now"

    def closed_then_synced(self, data):
        write(self.path, data)
        file = os.open(self.path, os.O_RDONLY)
        os.close(file)
        file = os.open(self.path, os.O_WRONLY)
        os.fsync(file)
        os.close(file)
        return "now"

    def checked_in(self, data):
        write(self.path, data)
        run("checkin", self.path, "-m", str(self.turn))
        return "now"

    def ways(self):
        often = [self.in_place, self.patch, self.renamed] * 3
        return [*often, self.in_place_synced, self.renamed_synced, self.renamed_with_name, self.closed_then_synced]


def sync_directory(path):
    directory = os.open(path, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def pause(longest):
    time.sleep(random.uniform(0, longest))


def save_mixed(witness, names):
    documents = [Document(witness, name) for name in names]
    while True:
        document = random.choice(documents)
        document.save(random.choice([*document.ways(), *([document.checked_in] * 2)]))
        pause(0.15)


def save_hot(witness):
    """Saves follow each other faster than they can be published."""
    document = Document(witness, "hot")
    while True:
        document.save(document.patch)


def check_in(witness):
    """Each version that was answered is there."""
    document = Document(witness, "versions")
    while True:
        document.turn += 1
        data = content("versions", document.turn)
        witness.trying("versions", document.turn, data)
        write(document.path, data)
        done = run("checkin", document.path, "-m", str(document.turn))
        version = done["items"][0]["version"]
        witness.answered("versions", document.turn, "now", version=version, digest=digest(data))
        pause(0.1)


def revert(witness):
    """What a revert gave up is a recovery copy, and the version shows again."""
    document = Document(witness, "reverted")
    original = document.data
    while True:
        document.save(random.choice([document.in_place, document.renamed]))
        saved = document.data
        document.turn += 1
        witness.trying("reverted", document.turn, original)
        done = run("revert", document.path)
        copies = [copy["id"] for copy in done["recovered"]]
        witness.answered("reverted", document.turn, "now", copies=copies, digest=digest(saved))
        pause(0.1)


def take_leases(witness):
    """By command and by opening for writing."""
    for number in range(LEASED):
        path = f"{FM}/docs/leased/{number}.doc"
        if number % 2:
            run("checkout", path)
        else:
            write(path, b"new", flags=0)
        witness.answered("lease", number, "now", path=f"docs/leased/{number}.doc")
        pause(0.1)


def import_files(witness):
    for number in range(1000):
        source = f"{OUT}/in-{number}"
        os.makedirs(source)
        data = content("imported", number)
        write(f"{source}/imported.doc", data)
        witness.trying("imported", number, data)
        run("import", source, "-m", "more", "-w", WORKSPACE, *WHO)
        witness.answered("imported", number, "now", path=f"in-{number}/imported.doc")
        pause(0.2)


def put_blobs(witness):
    """Each digest that was answered is in the store: in the workspace's, and in a directory of blobs by itself."""
    for number in range(10000):
        data, store = content("blob", number), STORES[number % len(STORES)]
        source = f"{OUT}/blob"
        write(source, data)
        witness.trying("blob", number, data)
        done = run("store", "put", *store, source)
        witness.answered("blob", number, "now", store=store, printed=done["digest"], digest=digest(data))
        pause(0.1)


def make_new(witness):
    """Names that were never there before."""
    for number in range(10000):
        name = f"new-{number}"
        document = Document(witness, name)
        witness.note(step="new", what=name)
        document.save(random.choice([document.in_place, document.renamed, document.in_place_synced]))
        if number % 3 == 0:
            sync_directory(f"{FM}/docs")
            witness.answered(name, document.turn, "now")
        pause(0.1)


def write_live(witness):
    """Pages of a file that is edited in place: each is what was last synced, or newer."""
    file = os.open(f"{FM}/docs/live.db", os.O_RDWR)
    turn = 0
    while True:
        turn += 1
        page = random.randrange(LIVE_PAGES)
        witness.trying(f"live-{page}", turn, live_page(page, turn))
        os.pwrite(file, live_page(page, turn), page * PAGE)
        os.fsync(file)
        witness.answered(f"live-{page}", turn, "now")
        pause(0.05)


def work():
    global RUNNERS
    RUNNERS = multiprocessing.get_context("fork").Pool(8)
    start_mount()
    jobs = [
        *((save_mixed, f"mixed-{n}", MIXED[2 * n : 2 * n + 2]) for n in range(3)),
        *((job, job.__name__) for job in (save_hot, check_in, revert, take_leases, import_files, put_blobs, make_new, write_live)),
    ]
    for job, name, *arguments in jobs:
        threading.Thread(target=until_cut, args=(job, Witness(name), *arguments)).start()
    write(f"{OUT}/ready", b"")


def until_cut(job, witness, *arguments):
    """A call that fails is the cut: powercut.sh ends the process soon after. One that fails before is a bug."""
    try:
        job(witness, *arguments)
    except (OSError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", None) or b""
        witness.note(step="error", what=job.__name__, at=time.monotonic(), error=f"{error} {told.decode()}")


# ---- check


class Checker:
    def __init__(self):
        self.cut = float(open(f"{OUT}/cut").read())
        self.steps = [step for name in sorted(os.listdir(OUT)) if name.startswith("witness-") for step in steps(name)]
        self.durable = os.path.exists(DURABLE)
        self.losses = 0
        self.counts = {}

    def lost(self, text):
        self.losses += 1
        print("LOST", text)

    def count(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    def acked(self, what):
        """What was answered until the cut. While a filesystem is shut down a sync may be answered with a success that
        nobody would have seen: with the power, the processor stops."""
        acks = [step for step in self.steps if step["step"] == "ack" and step["what"] == what]
        return [ack for ack in acks if ack["at"] <= self.cut]

    def allowed(self, what):
        """The digests that a thing may have: of the newest save that is promised, and of each that was tried since."""
        promised = [0]
        for ack in self.acked(what):
            due = self.durable or ack["promise"] == "now" or ack["at"] <= self.cut - SECOND
            promised += [ack["turn"]] if due else []
            self.count("promised" if due else "not yet promised")
        floor = max(promised)
        return floor, {data: turn for data, turn in self.tries(what).items() if turn >= floor}

    def tries(self, what):
        return {s["digest"]: s["turn"] for s in self.steps if s["step"] == "try" and s["what"] == what}

    def check_document(self, name, first):
        floor, allowed = self.allowed(name)
        if floor == 0:
            allowed |= {digest(data): 0 for data in first if data is not None}
        found = self.read(f"docs/{name}.doc")
        if found is None:
            if None not in first or floor > 0:
                self.lost(f"{name}: it is gone, and turn {floor} was promised")
        elif digest(found) not in allowed:
            known = {digest(content(name, 0)): 0} | self.tries(name)
            turn = known.get(digest(found))
            which = f"no save at all: {describe(found)}" if turn is None else f"turn {turn}"
            self.lost(f"{name}: turn {floor} was promised, and it has {which}")

    def read(self, path):
        try:
            with open(f"{FM}/{path}", "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.lost(f"{path}: it can't be read: {error}")
            return None

    def check_errors(self):
        for step in self.steps:
            if step["step"] == "error" and step["at"] < self.cut:
                self.lost(f"{step['what']} failed before the cut: {step['error']}")

    def check_documents(self):
        for name in [*MIXED, "hot", "reverted", "versions"]:
            self.check_document(name, [content(name, 0)])
        for step in self.steps:
            if step["step"] == "new":
                self.check_document(step["what"], [None, b""])

    def check_live(self):
        found = self.read("docs/live.db") or b""
        for page in range(LIVE_PAGES):
            floor, allowed = self.allowed(f"live-{page}")
            if floor == 0:
                allowed[digest(live_page(page, 0))] = 0
            data = found[page * PAGE : (page + 1) * PAGE]
            if digest(data) not in allowed:
                self.lost(f"page {page} of live.db: turn {floor} was promised: {describe(data)}")

    def check_versions(self):
        for ack in self.acked("versions"):
            self.count("check-ins")
            done = subprocess.run(
                command("cat", "-w", WORKSPACE, f"docs/versions.doc@@{ack['version']}"), capture_output=True
            )
            if digest(done.stdout) != ack["digest"]:
                self.lost(f"version {ack['version']} of versions.doc")

    def check_leases(self):
        held = {lease["path"]: lease["holder"] for lease in run("leases", "-w", WORKSPACE)}
        for ack in self.acked("lease"):
            self.count("leases")
            if held.get(ack["path"]) != HOLDER:
                self.lost(f"the lease of {ack['path']}")

    def check_imports(self):
        tries = {step["turn"]: step["digest"] for step in self.steps if (step["step"], step["what"]) == ("try", "imported")}
        for ack in self.acked("imported"):
            self.count("imports")
            found = self.read(ack["path"])
            if found is None or digest(found) != tries[ack["turn"]]:
                self.lost(f"the import of {ack['path']}")

    def check_blobs(self):
        for ack in self.acked("blob"):
            self.count("stored blobs")
            done = subprocess.run(command("store", "get", *ack["store"], ack["digest"]), capture_output=True)
            if ack["printed"] != ack["digest"] or digest(done.stdout) != ack["digest"]:
                self.lost(f"blob {ack['digest']} of {ack['store'][1]}: {done.stderr.decode().strip()}")

    def check_copies(self):
        for ack in self.acked("reverted"):
            for copy in ack.get("copies", []):
                self.count("recovery copies")
                target = f"{OUT}/copy-{copy}"
                subprocess.run(command("recovered", "restore", "-w", WORKSPACE, copy, target), capture_output=True)
                if not os.path.exists(target) or digest(open(target, "rb").read()) != ack["digest"]:
                    self.lost(f"recovery copy {copy}")

    def check_store(self):
        """Each version, and each draft that is in the store, has the bytes that its digest says."""
        catalog = sqlite3.connect(f"file:{WORKSPACE}/.leasehold/catalog.db?mode=ro", uri=True)
        named = catalog.execute("SELECT digest FROM version UNION SELECT digest FROM draft").fetchall()
        catalog.close()
        for name in (row[0].hex() for row in named if row[0]):
            self.count("blobs")
            path = f"{WORKSPACE}/.leasehold/objects/{name[:2]}/{name}"
            if not os.path.exists(path) or digest(open(path, "rb").read()) != name:
                self.lost(f"the bytes of blob {name}")

    def check_again(self):
        """All drafts can be checked in, and are the same bytes as versions."""
        before = self.whole_tree()
        deadline = time.monotonic() + 100
        while not self.checks_in() and time.monotonic() < deadline:
            time.sleep(1)
        if self.whole_tree() != before:
            self.lost("a check-in changed what a file holds")

    def checks_in(self):
        """A lock whose bytes the cut took is nobody's a minute later."""
        done = subprocess.run(command("checkin", FM, "-m", "after the cut"), capture_output=True)
        if done.returncode != 0 and b"is held by somebody else" not in done.stderr:
            self.lost(f"what can't be checked in: {done.stderr.decode()}")
        return done.returncode == 0 or b"is held by somebody else" not in done.stderr

    def whole_tree(self):
        names = [os.path.join(top, name) for top, _, files in os.walk(FM) for name in files]
        return {name: digest(open(name, "rb").read()) for name in sorted(names)}

    def count_taken_back(self):
        problems = run("status", FM)["problems"]
        self.count("taken back", len([problem for problem in problems if "power cut" in json.dumps(problem)]))


def steps(name):
    for line in open(f"{OUT}/{name}", "rb").read().split(b"\n"):
        # The last line of a thread that was killed may be cut short.
        try:
            yield json.loads(line)
        except ValueError:
            pass


def describe(data):
    zeros = sum(data[start : start + PAGE].count(0) == len(data[start : start + PAGE]) for start in range(0, len(data), PAGE))
    return f"{len(data)} bytes, {zeros} blocks of zeros"


def check():
    mount = start_mount()
    checker = Checker()
    for each in (
        checker.check_errors,
        checker.count_taken_back,
        checker.check_documents,
        checker.check_live,
        checker.check_versions,
        checker.check_leases,
        checker.check_imports,
        checker.check_blobs,
        checker.check_copies,
        checker.check_again,
    ):
        each()
    subprocess.run(command("umount", FM), check=True, capture_output=True)
    mount.wait()
    checker.check_store()
    print(f"{checker.losses} lost; " + ("durable closes, " if checker.durable else "") + ", ".join(f"{number} {what}" for what, number in sorted(checker.counts.items())))
    sys.exit(checker.losses > 0)


if __name__ == "__main__":
    {"prepare": prepare, "work": work, "check": check}[sys.argv[1]]()
