//! The lease table for people and programs: sets, intents, tasks, requests, and what people do by hand.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use libc::{O_TRUNC, O_WRONLY, SIGCONT, SIGKILL, SIGSTOP};
use serde_json::Value;

use super::{Mount, Workspace, eventually, program};
use crate::kernel::{self, EBUSY};

fn state(mount: &Mount, name: &str) -> String {
    mount.xattr(name, "user.lease.state").unwrap()
}

/// Whoever is stopped with unsaved bytes in `doc.txt`, and whose lease has ended.
fn stopped_writer(workspace: &Workspace) -> (Mount, crate::agent::App, i32) {
    let ada = workspace.mount_with("ada", &["--ttl", "2s"]);
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"unsaved").unwrap();
    (ada, app, fd)
}

fn daemon_of(mount: &Mount) -> i32 {
    i32::try_from(mount.daemon().pid).unwrap()
}

/// A stopped process, which goes on when this ends: whoever waits for it would wait for ever.
struct Stopped(i32);

impl Stopped {
    fn new(process: i32) -> Self {
        kernel::kill(process, SIGSTOP);
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kernel::kill(self.0, SIGCONT);
    }
}

/// A set is taken as a whole or not at all, and a refusal names every blocker with holder, expiry and generation.
#[test]
fn a_set_is_all_or_nothing() {
    let Some(workspace) = Workspace::with(&[("a.txt", b"a"), ("dir/b.txt", b"b")]) else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    bob.run(&["lease", "acquire", "dir/b.txt", "thread:7"]).ok();
    let line = ada.run(&["lease", "acquire", "a.txt", "dir", "thread:7"]).refused(3);
    for part in ["dir/b.txt: held by bob@desk until 2", "thread:7: held by bob@desk", "(generation "] {
        assert!(line.contains(part), "{part} in: {line}");
    }
    assert_eq!(state(&ada, "a.txt"), "free");
    bob.run(&["lease", "release", "dir/b.txt", "thread:7"]).ok();
    let taken = ada.run(&["lease", "acquire", "a.txt", "dir", "thread:7", "--ttl", "1h", "--json"]).json();
    let keys: Vec<_> = taken["leases"].as_array().unwrap().iter().map(|lease| &lease["path"]).collect();
    assert_eq!(
        keys,
        ["a.txt", "dir", ""].map(|path| if path.is_empty() { Value::Null } else { path.into() }).each_ref()
    );
    assert_eq!(bob.app().open(&bob.path("dir/b.txt"), O_WRONLY), Err(EBUSY));
    ada.app().overwrite(&ada.path("dir/b.txt"), b"ada's").unwrap();
}

/// A hook learns by the exit status whose something is: mine, nobody's, somebody else's.
#[test]
fn guards_answer_by_their_status() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    assert!(ada.run(&["lease", "guard", "doc.txt"]).refused(1).contains("doc.txt: free"));
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    assert_eq!(ada.run(&["lease", "guard", "doc.txt"]).ok(), "");
    assert!(bob.run(&["lease", "guard", "doc.txt"]).refused(3).contains("ada@desk"));
    assert!(ada.run(&["lease", "guard", "doc.txt", "thread:1"]).refused(1).contains("thread:1"));
    assert!(bob.run(&["lease", "guard", "thread:1", "doc.txt"]).refused(3).contains("doc.txt"));
    assert_eq!(bob.run(&["lease", "guard", "doc.txt", "--as", "ada@desk"]).ok(), "");
}

/// A request that is repeated is answered again and takes nothing; another one of its id is refused.
#[test]
fn requests_may_be_repeated() {
    let Some(workspace) = Workspace::with_document() else { return };
    let acquire = |what: &str| {
        workspace.run(&["lease", "acquire", what, "--as", "bot", "--request-id", "r-1", "--json"])
    };
    let first = acquire("thread:1").json();
    let again = acquire("thread:1").json();
    assert_eq!((&first["replayed"], &again["replayed"]), (&Value::Bool(false), &Value::Bool(true)));
    assert_eq!(first["leases"], again["leases"]);
    workspace.run(&["lease", "release", "thread:1", "--as", "bot"]).ok();
    let ended = acquire("thread:1").json();
    assert_eq!(ended["leases"][0]["live"], false, "{ended}");
    workspace.run(&["lease", "guard", "thread:1"]).refused(1);
    assert!(acquire("thread:2").refused(1).contains("r-1"));
    assert!(
        workspace.run(&["lease", "acquire", "thread:1", "--request-id", ""]).refused(2).contains("empty")
    );
}

/// A task takes its key and tells what it is to work on; who works in the same checkout is refused, others are warned, and
/// both see it at the file.
#[test]
fn tasks_tell_what_they_are_about() {
    let Some(workspace) = Workspace::with(&[("src/auth/x", b"x"), ("src/authz/y", b"y")]) else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let begin = |mount: &Mount, task: &str, who: &str, path: &str| {
        mount.run(&["lease", "begin", task, "--as", who, "--paths", path])
    };
    begin(&ada, "T-1", "agent-1", "src/auth/**").ok();
    assert_eq!(
        (state(&ada, "src/auth/x").as_str(), state(&bob, "src/auth/x").as_str()),
        ("intent", "intent")
    );
    assert_eq!(state(&bob, "src/authz/y"), "free", "by components, not by prefix");
    let intents = bob.xattr("src/auth/x", "user.lease.intents").unwrap();
    assert!(intents.starts_with("agent-1 2") && intents.ends_with(" src/auth/**"), "{intents}");
    assert!(begin(&ada, "T-2", "agent-2", "src/auth/x").refused(3).contains("agent-1 means to work on"));
    assert!(begin(&ada, "T-1", "agent-2", "other/**").refused(3).contains("task:T-1"));
    let warned = begin(&bob, "T-3", "agent-3", "src/**").ok();
    assert!(warned.contains("mind: intent:src/**: agent-1 means to work on intent:src/auth/**"), "{warned}");
    let listed = bob.run(&["lease", "list", "--under", "src/auth", "--json"]).json();
    let patterns: Vec<_> = listed["intents"].as_array().unwrap().iter().map(|one| &one["pattern"]).collect();
    assert_eq!(patterns, ["src/**", "src/auth/**"]);
    ada.app().overwrite(&ada.path("src/auth/x"), b"intents keep nobody from writing").unwrap();
    ada.run(&["lease", "end", "T-1", "--as", "agent-1"]).ok();
    assert!(ada.run(&["lease", "end", "T-1", "--as", "agent-1"]).refused(1).contains("T-1"));
    begin(&ada, "T-2", "agent-2", "src/auth/x").ok();
}

/// Who waits for a lease gets it when it is given back; who doesn't wait long enough is refused.
#[test]
fn a_lease_can_be_waited_for() {
    let Some(workspace) = Workspace::with_document() else { return };
    workspace.run(&["lease", "acquire", "thread:1", "--as", "ada"]).ok();
    workspace.run(&["lease", "acquire", "thread:1", "--as", "bob", "--wait", "50ms"]).refused(3);
    let mut waiting = start(&workspace, &["lease", "acquire", "thread:1", "--as", "bob", "--wait", "1m"]);
    assert!(waiting.try_wait().unwrap().is_none());
    workspace.run(&["lease", "release", "thread:1", "--as", "ada"]).ok();
    assert!(waiting.wait().unwrap().success());
    workspace.run(&["lease", "guard", "thread:1", "--as", "bob"]).ok();
}

fn start(workspace: &Workspace, args: &[&str]) -> Child {
    let mut command = Command::new(program());
    let (subcommand, options) = args.split_at(2);
    command.args(subcommand).arg("-w").arg(workspace.root()).args(options).current_dir("/");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A command runs with its leases held and renewed, and they go with it; what was held before stays. A lost one is told,
/// and ends the command where that is asked for.
#[test]
fn a_command_runs_while_its_leases_are_held() {
    let Some(workspace) = Workspace::with_document() else { return };
    let run = |options: &[&str], script: &str| {
        let held = ["lease", "run", "thread:1", "thread:2", "--as", "bot", "--ttl", "2s"];
        workspace.run(&[&held[..], options, &["--", "sh", "-c", script]].concat())
    };
    workspace.run(&["lease", "acquire", "thread:2", "--as", "bot"]).ok();
    let guard = format!(
        "sleep 3; {} lease guard thread:1 thread:2 --as bot -w {} || exit 9; exit 5",
        std::path::Path::new(&program()).display(),
        workspace.root().display()
    );
    assert_eq!(run(&[], &guard).status, 5, "renewed, and it ends as the command does");
    workspace.run(&["lease", "guard", "thread:1"]).refused(1);
    workspace.run(&["lease", "guard", "thread:2", "--as", "bot"]).ok();
    let mut lost = start(
        &workspace,
        &[
            "lease",
            "run",
            "thread:1",
            "--as",
            "bot",
            "--ttl",
            "2s",
            "--on-loss",
            "kill",
            "--",
            "sleep",
            "600",
        ],
    );
    eventually("the lease", || {
        (workspace.run(&["lease", "guard", "thread:1", "--as", "bot"]).status == 0).then_some(())
    });
    workspace.run(&["lease", "break", "thread:1", "--reason", "mine", "--as", "ada"]).ok();
    let status = lost.wait().unwrap();
    assert_eq!(status.code(), Some(128 + libc::SIGTERM));
    let told = std::io::read_to_string(lost.stderr.take().unwrap()).unwrap();
    assert!(told.contains("lost: thread:1"), "{told}");
    assert!(run(&[], "true").status == 0, "and it is free again");
}

/// Events have consecutive numbers, and who follows is told of each as it happens.
#[test]
fn events_are_followed_without_a_gap() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let mut following = start(&workspace, &["lease", "events", "--follow", "--after", "0", "--json"]);
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let mut seen = vec![next()];
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    workspace.run(&["lease", "acquire", "thread:1", "--as", "bob"]).ok();
    ada.check_in();
    while seen.last().unwrap()["kind"] != "released" {
        seen.push(next());
    }
    following.kill().unwrap();
    following.wait().unwrap();
    let numbers: Vec<_> = seen.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
    let told = |kind: &str, object: &str| {
        seen.iter().any(|event| event["kind"] == kind && (event["path"] == object || event["key"] == object))
    };
    assert!(
        told("granted", "doc.txt") && told("granted", "thread:1") && told("released", "doc.txt"),
        "{seen:?}"
    );
    let after = workspace.run(&["lease", "events", "--after", &(numbers[0]).to_string()]).ok();
    assert_eq!(after.lines().count(), seen.len() - 1);
}

/// A holder whose lease is broken while he writes is told at his next write, by status and by event; his bytes are kept,
/// and the file is free for whoever broke it.
#[test]
fn a_broken_lease_is_told_at_the_next_write() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"unsaved").unwrap();
    bob.run(&["lease", "break", "doc.txt", "--reason", "release day"]).ok();
    eventually("her next write to be refused", || {
        app.write(fd, b"more").err().filter(|error| *error == EBUSY)
    });
    let _ = app.close(fd);
    let problems = ada.status()["problems"].to_string();
    assert!(problems.contains("by bob@desk: release day"), "{problems}");
    bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
    let copies =
        eventually("the recovery copy", || Some(workspace.recovered()).filter(|copies| !copies.is_empty()));
    assert!(workspace.restore_recovered(&copies[0]).starts_with(b"unsaved"));
}

/// A saved draft under a broken lease is not checked in, until its holder takes the lease again.
#[test]
fn a_draft_under_a_broken_lease_waits_for_its_holder() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    bob.run(&["lease", "break", "doc.txt", "--reason", "r"]).ok();
    assert!(ada.run(&["checkin", "-m", "m"]).refused(3).contains("doc.txt: the lease was broken"));
    ada.run(&["checkout", "doc.txt"]).ok();
    ada.check_in();
    assert_eq!(ada.read("doc.txt"), b"ada's");
}

/// A stopped mount with unsaved bytes keeps the file closed after its lease has ended, until somebody resolves it: its
/// bytes are kept, or dropped where that is asked for.
#[test]
fn a_stopped_writer_is_resolved_by_hand() {
    for option in ["--keep", "--discard"] {
        let Some(workspace) = Workspace::with_document() else { return };
        let bob = workspace.mount("bob");
        let (ada, app, fd) = stopped_writer(&workspace);
        eventually("the quarantine", || (state(&bob, "doc.txt") == "quarantined").then_some(()));
        let stopped = Stopped::new(daemon_of(&ada));
        assert_eq!(bob.app().open(&bob.path("doc.txt"), O_WRONLY), Err(EBUSY));
        assert!(bob.run(&["checkout", "doc.txt"]).refused(3).contains("may still be writing"));
        let resolved = bob.run(&["lease", "resolve", "doc.txt", option]).ok();
        assert!(resolved.contains("ada@desk"), "{resolved}");
        bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
        drop(stopped);
        eventually("her loss", || app.write(fd, b"more").err().filter(|error| *error == EBUSY));
        let _ = app.close(fd);
        bob.check_in();
        eventually("bob's version", || (ada.read("doc.txt") == b"bob's").then_some(()));
        let copies: Vec<_> =
            workspace.recovered().iter().map(|copy| workspace.restore_recovered(copy)).collect();
        let keeps = option == "--keep";
        assert_eq!(copies.first().is_some_and(|copy| copy.starts_with(b"unsaved")), keeps, "{option}");
        assert_eq!(copies.is_empty(), !keeps, "{option}");
        assert!(bob.run(&["lease", "resolve", "doc.txt"]).refused(1).contains("doc.txt"));
    }
}

/// A killed mount holds nothing closed once its lease has ended.
#[test]
fn a_killed_writer_resolves_by_itself() {
    let Some(workspace) = Workspace::with_document() else { return };
    let bob = workspace.mount("bob");
    let (ada, app, _) = stopped_writer(&workspace);
    eventually("the quarantine", || (state(&bob, "doc.txt") == "quarantined").then_some(()));
    kernel::kill(daemon_of(&ada), SIGKILL);
    drop(app);
    eventually("its end", || (state(&bob, "doc.txt") == "free").then_some(()));
    bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
}

/// A holder is asked for what he has: status tells it until he gives it back, and his desktop shows it.
#[test]
fn a_holder_is_asked() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (bin, shown) = (workspace.beside("bin"), workspace.beside("shown"));
    std::fs::create_dir(&bin).unwrap();
    let notifier = bin.join("notify-send");
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >>{}\n", shown.display());
    std::fs::write(&notifier, script).unwrap();
    std::fs::set_permissions(&notifier, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let ada = workspace.mount_in_foreground_with("ada", vec![("PATH", path.into())]);
    let bob = workspace.mount("bob");
    assert!(bob.run(&["lease", "ask", "doc.txt", "-m", "please"]).refused(1).contains("doc.txt"));
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    bob.run(&["lease", "ask", "doc.txt", "-m", "it's <due> & late\n"]).ok();
    let asks = ada.status()["asks"].to_string();
    assert!(asks.contains("doc.txt: bob@desk at 2") && asks.contains("it's <due> & late"), "{asks}");
    let text = eventually("the notification", || {
        std::fs::read_to_string(&shown).ok().filter(|text| text.contains("late"))
    });
    assert_eq!(
        text,
        "--app-name=Leasehold\n--\ndoc.txt was asked\nbob@desk: it's &lt;due&gt; &amp; late\\x0a\n"
    );
    assert!(ada.run(&["status"]).ok().contains("asked of you"));
    ada.check_in();
    assert_eq!(ada.status()["asks"].as_array().map(Vec::len), Some(0));
}
