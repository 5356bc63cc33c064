//! The policy on real mounts: each key by path, changes without a new mount, and files that can't be trusted or read.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use libc::{O_CREAT, O_RDWR, O_TRUNC, O_WRONLY};

use super::{Mount, Ran, Workspace, eventually};
use crate::kernel::EBUSY;

/// A workspace with two documents, and two mounts of it, under a policy.
fn governed(policy: &str) -> Option<(Workspace, Mount, Mount)> {
    let workspace = Workspace::with(&[("doc.txt", b"old"), ("other.txt", b"old")])?;
    workspace.set_policy(policy);
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    Some((workspace, ada, bob))
}

fn state(mount: &Mount, name: &str) -> Option<String> {
    mount.xattr(name, "user.lease.state")
}

fn is_state(mount: &Mount, name: &str, wanted: &str) -> bool {
    state(mount, name).as_deref() == Some(wanted)
}

fn problems(mount: &Mount) -> String {
    mount.status()["problems"].to_string()
}

/// A success with one line of warning; returns that.
fn warned(ran: Ran) -> String {
    assert_eq!((ran.status, ran.stderr.lines().count()), (0, 1), "{}", ran.stderr);
    ran.stderr
}

/// Another policy holds without a new mount, however it is written; one that can't be used leaves what held before, and
/// `status` says so until it is mended.
#[test]
fn a_mount_follows_the_policy() {
    let Some((workspace, ada, bob)) = governed("") else { return };
    let (app, other) = (ada.app(), bob.app());
    app.overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    let bob_may_write = || match other.open(&bob.path("doc.txt"), O_RDWR) {
        Ok(fd) => other.close(fd).is_ok(),
        Err(error) => {
            assert_eq!(error, EBUSY);
            false
        }
    };
    assert!(!bob_may_write());
    workspace.set_policy("[[rule]]\npaths = ['doc.txt']\nlease = 'none'\n");
    eventually("the rule", || bob_may_write().then_some(()));
    workspace.set_policy("[[rule]]\npaths = ['doc.txt']\nlease = 'maybe'\n");
    let told = eventually("the error", || Some(problems(&bob)).filter(|it| it.contains("config.toml")));
    assert!(told.contains("config.toml:3: \\\"rule.lease\\\" is not understood"), "{told}");
    assert!(bob_may_write(), "what held before still does");
    fs::write(workspace.beside("new"), "# all defaults\n").unwrap();
    fs::rename(workspace.beside("new"), workspace.dot("config.toml")).unwrap();
    eventually("the mended one", || (problems(&bob) == "[]").then_some(()));
    assert!(!bob_may_write());
    workspace.set_policy("lease = 'none'\n");
    eventually("no leases", || bob_may_write().then_some(()));
    fs::remove_file(workspace.dot("config.toml")).unwrap();
    eventually("the defaults", || (!bob_may_write()).then_some(()));
}

/// Another shared store waits for the next mount, and `status` says so.
#[test]
fn another_shared_store_waits_for_the_next_mount() {
    let Some((workspace, ada, _bob)) = governed("") else { return };
    workspace.set_policy("lease = 'none'\n[remote]\nurl = 'https://sesame.example'\n");
    let told = eventually("the hint", || Some(problems(&ada)).filter(|it| it.contains("[remote]")));
    assert!(told.contains("mount again") && !told.contains("sesame"), "{told}");
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    assert!(is_state(&ada, "doc.txt", "free"), "all else holds at once");
    workspace.set_policy("lease = 'none'\n");
    eventually("no hint", || (problems(&ada) == "[]").then_some(()));
}

/// With a policy that can't be used one can still look, and is warned; whoever would write is refused with the line; and
/// an unmount saves and ends as ever.
#[test]
fn a_broken_policy_keeps_nobody_from_looking() {
    let Some((workspace, ada, bob)) = governed("") else { return };
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    bob.unmount();
    for (mode, policy, line) in [
        (0o644, "ttl = '1h'\nttk = '1h'\n", "config.toml:2: \"ttk\""),
        (0o666, "", "config.toml: everybody may"),
    ] {
        workspace.set_policy(policy);
        fs::set_permissions(workspace.dot("config.toml"), fs::Permissions::from_mode(mode)).unwrap();
        let looks: [&[&str]; 8] = [
            &["status"],
            &["log"],
            &["cat", "other.txt"],
            &["leases"],
            &["lease", "show", "doc.txt"],
            &["recovered"],
            &["fsck"],
            &["status", "--json", "--as", "bob", "--checkout", "desk"],
        ];
        for look in looks {
            let warning = warned(ada.run(look));
            assert!(warning.starts_with("leasehold: warning: ") && warning.contains(line), "{warning}");
        }
        let writes: [&[&str]; 7] = [
            &["checkin", "-m", "refused"],
            &["checkout", "doc.txt"],
            &["revert", "doc.txt"],
            &["lease", "acquire", "thread:1"],
            &["add", "doc.txt"],
            &["restore", "doc.txt@@1"],
            &["gc"],
        ];
        for write in writes {
            assert!(ada.run(write).refused(1).contains(line), "{write:?}");
        }
        let Err(refused) = workspace.try_mount("bob", &[]) else { panic!("it is mounted") };
        assert!(refused.stderr.contains(line), "{}", refused.stderr);
    }
    assert_eq!(ada.drafts(), ["doc.txt"]);
    let app = ada.app();
    app.overwrite(&ada.path("other.txt"), b"ada's, too").unwrap();
    let unmounted = workspace.run(&["umount".as_ref(), ada.at().as_os_str()]);
    assert!(warned(unmounted).contains("config.toml"), "and says what is wrong");
    workspace.set_policy("");
    let ada = workspace.mount("ada");
    assert_eq!(ada.read("other.txt"), b"ada's, too");
}

/// A policy that somebody else could have written isn't followed by a mount, either.
#[test]
fn a_mount_follows_no_policy_that_others_could_have_written() {
    let Some((workspace, ada, bob)) = governed("") else { return };
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    let (config, new) = (workspace.dot("config.toml"), workspace.beside("new"));
    fs::write(&new, "lease = 'none'\n").unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o666)).unwrap();
    fs::rename(&new, &config).unwrap();
    eventually("the refusal", || problems(&bob).contains("everybody may change it").then_some(()));
    assert_eq!(bob.app().overwrite(&bob.path("doc.txt"), b"bob's"), Err(EBUSY));
    workspace.set_policy("");
    eventually("the defaults", || (problems(&bob) == "[]").then_some(()));
    fs::set_permissions(workspace.dot(""), fs::Permissions::from_mode(0o777)).unwrap();
    fs::remove_file(&config).unwrap();
    fs::write(&config, "lease = 'none'\n").unwrap();
    eventually("the refusal", || {
        problems(&bob).contains("everybody may write in this directory").then_some(())
    });
    assert_eq!(bob.app().overwrite(&bob.path("doc.txt"), b"bob's"), Err(EBUSY));
    fs::set_permissions(workspace.dot(""), fs::Permissions::from_mode(0o700)).unwrap();
}

/// The policy can't be reached through a mount: what lies at its name there is a document like others.
#[test]
fn the_policy_is_not_in_the_mount() {
    let Some((workspace, ada, _bob)) = governed("ttl = '1h'\n") else { return };
    let before = fs::read(workspace.dot("config.toml")).unwrap();
    let app = ada.app();
    assert!(!ada.path(".leasehold").exists());
    fs::create_dir(ada.path(".leasehold")).unwrap();
    app.save(&ada.path(".leasehold/config.toml"), O_CREAT, b"lease = 'none'\n").unwrap();
    ada.check_in();
    app.overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    assert!(is_state(&ada, "doc.txt", "mine"), "the policy is another file");
    assert_eq!(fs::read(workspace.dot("config.toml")).unwrap(), before);
}

/// Nobody gets a lease for longer than policy permits: who asks for it is refused.
#[test]
fn nobody_gets_more_than_the_longest_time() {
    let rules = "max_ttl = '2h'\nttl = '1h'\n[[rule]]\npaths = ['doc.txt']\nmax_ttl = '10m'\n";
    let Some((workspace, ada, bob)) = governed(rules) else { return };
    let asks = |target: &str, ttl: &str| ada.run(&["lease", "acquire", target, "--ttl", ttl]);
    assert!(asks("doc.txt", "11m").refused(2).contains("doc.txt: a lease of 11m is longer than the 10m"));
    asks("doc.txt", "10m").ok();
    assert!(asks("thread:1", "121m").refused(2).contains("thread:1: a lease of 2h1m is longer than the 2h"));
    asks("thread:1", "2h").ok();
    bob.unmount();
    let Err(refused) = workspace.try_mount("bob", &["--ttl", "3h"]) else { panic!("it is mounted") };
    assert!(refused.stderr.contains("--ttl 3h: longer than the 2h"), "{}", refused.stderr);
}

/// Where no lease is needed nobody holds anything, and a check-in is refused if somebody else was faster.
#[test]
fn where_no_lease_is_needed_all_may_write() {
    let rules = "[[rule]]\npaths = ['doc.txt']\nlease = 'none'\n";
    let Some((_workspace, ada, bob)) = governed(rules) else { return };
    let (app, other) = (ada.app(), bob.app());
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"ada's").unwrap();
    other.overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
    assert!(is_state(&ada, "doc.txt", "free") && is_state(&bob, "doc.txt", "free"));
    assert_eq!(other.access(&bob.path("doc.txt"), libc::W_OK), Ok(()));
    app.close(fd).unwrap();
    assert!(ada.run(&["checkout", "doc.txt"]).refused(1).contains("lease = \"none\""));
    ada.check_in();
    bob.run(&["checkin", "-m", "too late"]).refused(4);
    assert_eq!(bob.read("doc.txt"), b"bob's", "nothing is lost");
    app.overwrite(&ada.path("other.txt"), b"ada's").unwrap();
    assert_eq!(other.overwrite(&bob.path("other.txt"), b"bob's"), Err(EBUSY), "no rule is about it");
}

/// Where a conflict is only told, both go on, and both are told.
#[test]
fn a_conflict_may_be_told_to_both() {
    let rules = "[[rule]]\npaths = ['doc.txt']\non_conflict = 'warn'\n";
    let Some((_workspace, ada, bob)) = governed(rules) else { return };
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
    assert!(is_state(&ada, "doc.txt", "mine") && is_state(&bob, "doc.txt", "held"));
    for mount in [&ada, &bob] {
        let told = problems(mount);
        assert!(told.contains("lease-conflict: doc.txt: bob@desk writes to what ada@desk holds"), "{told}");
    }
    ada.check_in();
    assert_eq!(problems(&ada), "[]");
    bob.run(&["checkin", "-m", "too late"]).refused(4);
}

/// An open file keeps its lease though nothing is written, and loses it when it was not renewed in time.
#[test]
fn an_open_file_keeps_its_lease() {
    let rules = "[[rule]]\npaths = ['doc.txt']\nrenew = 'open'\nttl = '1s'\n";
    let Some((_workspace, ada, bob)) = governed(rules) else { return };
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"ada's").unwrap();
    let (generation, expires) = (
        ada.xattr("doc.txt", "user.lease.generation").unwrap(),
        ada.xattr("doc.txt", "user.lease.expires").unwrap(),
    );
    // Far longer than the lease would have lasted.
    let mut ends = std::collections::BTreeSet::from([expires]);
    eventually("several renewals", || {
        ends.extend(ada.xattr("doc.txt", "user.lease.expires"));
        assert_eq!(bob.app().open(&bob.path("doc.txt"), O_RDWR), Err(EBUSY));
        (ends.len() > 6).then_some(())
    });
    assert_eq!(ada.xattr("doc.txt", "user.lease.generation"), Some(generation));
    app.close(fd).unwrap();
    eventually("the end", || bob.app().overwrite(&bob.path("doc.txt"), b"bob's").ok());
}

/// The lease of a closed file is given back though its draft stays; a check-in takes that if nobody was faster.
#[test]
fn a_closed_file_gives_its_lease_back() {
    let rules = "grace = '100ms'\n[[rule]]\npaths = ['doc.txt']\nrelease = 'close'\n";
    let Some((_workspace, ada, bob)) = governed(rules) else { return };
    let app = ada.app();
    app.overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    app.overwrite(&ada.path("other.txt"), b"ada's").unwrap();
    eventually("the lease to be free", || is_state(&bob, "doc.txt", "free").then_some(()));
    assert!(is_state(&bob, "other.txt", "held"), "no rule is about it");
    assert_eq!(ada.drafts(), ["doc.txt", "other.txt"]);
    let other = bob.app();
    let fd = other.open(&bob.path("doc.txt"), O_RDWR).unwrap();
    ada.run(&["checkin", "-m", "held", "doc.txt"]).refused(3);
    other.close(fd).unwrap();
    eventually("bob's lease to be free", || is_state(&ada, "doc.txt", "free").then_some(()));
    ada.check_in();
    eventually("the version", || (bob.read("doc.txt") == b"ada's").then_some(()));
}

/// An unmount gives back what was closed, though the grace has not passed.
#[test]
fn an_unmount_gives_the_leases_of_closed_files_back() {
    let Some((workspace, ada, bob)) = governed("grace = '1h'\nrelease = 'close'\n") else { return };
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    assert!(is_state(&bob, "doc.txt", "held"));
    ada.unmount();
    assert!(is_state(&bob, "doc.txt", "free"));
    bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
    assert_eq!(workspace.mount("ada").read("doc.txt"), b"ada's");
}
