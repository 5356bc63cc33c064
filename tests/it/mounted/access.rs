//! What a principal may not see isn't there for him, whichever way he asks; what he may only read can't be written.
//!
//! The tests' own user made the workspace and owns everything, so that it may act as others.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use libc::{O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, RENAME_EXCHANGE, S_IFIFO, W_OK};
use serde_json::Value;

use super::{Mount, Ran, Workspace, eventually, run_as};
use crate::agent::App;
use crate::kernel::{self, EACCES, EEXIST, ENOENT, ENOTEMPTY, Errno, Sys};

/// A call on a path, with an application and a free path beside.
type Call = fn(&App, &Path, &Path) -> Sys<()>;

/// A workspace in which `hr` and names with `.key` are restricted, and a mount of bob, who has no grant.
fn restricted() -> Option<(Workspace, Mount)> {
    let files: [(&str, &[u8]); 5] = [
        ("hr/pay.txt", b"pay"),
        ("hr/deep/x.txt", b"x"),
        ("pub/doc.txt", b"doc"),
        ("pub/a.key", b"key"),
        ("top.txt", b"top"),
    ];
    let workspace = Workspace::with(&files)?;
    for glob in ["hr/**", "*.key"] {
        workspace.run(&["access", "restrict", glob]).ok();
    }
    let bob = workspace.mount_judged("bob");
    Some((workspace, bob))
}

fn errno<T>(result: Sys<T>) -> Option<Errno> {
    result.err()
}

/// Names that a restriction covers are in no listing, and each call answers as for a name that isn't there.
#[test]
fn what_is_restricted_is_not_there() {
    let Some((_workspace, bob)) = restricted() else { return };
    assert_eq!(
        (bob.list(""), bob.list("pub")),
        (vec!["pub".into(), "top.txt".into()], vec!["doc.txt".into()])
    );
    let app = bob.app();
    let calls: [(&str, Call); 11] = [
        ("open", |app, path, _| app.open(path, O_RDONLY).map(drop)),
        ("open for write", |app, path, _| app.open(path, O_RDWR).map(drop)),
        ("cut", |app, path, _| app.truncate(path, 0)),
        ("chmod", |app, path, _| app.chmod(path, 0o600)),
        ("unlink", |app, path, _| app.unlink(path)),
        ("rmdir", |_, path, _| kernel::rmdir(path)),
        ("rename away", |app, path, free| app.rename(path, free, 0)),
        ("exchange", |app, path, free| app.rename(path, &free.with_file_name("top.txt"), RENAME_EXCHANGE)),
        ("access", |app, path, _| app.access(path, W_OK)),
        ("getxattr", |_, path, _| kernel::getxattr(path, "user.lease.state").map(drop)),
        ("below", |app, path, _| app.open(&path.join("name"), O_RDONLY).map(drop)),
    ];
    for (what, call) in calls {
        let missing = errno(call(&app, &bob.path("missing"), &bob.path("free")));
        assert_eq!(missing, Some(ENOENT), "{what}");
        for hidden in ["hr", "hr/pay.txt", "pub/a.key", "hr/missing", "pub/missing.key"] {
            assert_eq!(
                errno(call(&app, &bob.path(hidden), &bob.path("free"))),
                missing,
                "{what} of {hidden}"
            );
        }
    }
    assert_eq!(bob.drafts(), [""; 0]);
}

/// Where a restriction covers, nobody without a grant makes anything, and the answer doesn't tell what is there.
#[test]
fn nothing_is_made_where_a_restriction_covers() {
    let Some((_workspace, bob)) = restricted() else { return };
    let app = bob.app();
    app.save(&bob.path("mine.txt"), O_CREAT | O_EXCL, b"mine").unwrap();
    kernel::mkdir(&bob.path("dir")).unwrap();
    let calls: [(&str, Call); 7] = [
        ("create", |app, path, _| app.open(path, O_CREAT | O_WRONLY).map(drop)),
        ("create exclusively", |app, path, _| app.open(path, O_CREAT | O_EXCL | O_RDWR).map(drop)),
        ("mkdir", |_, path, _| kernel::mkdir(path)),
        ("symlink", |_, path, _| std::os::unix::fs::symlink("x", path).map_err(|e| Errno::of(&e))),
        ("mkfifo", |_, path, _| kernel::mknod(path, S_IFIFO)),
        ("rename over", |app, path, mine| app.rename(mine, path, 0)),
        ("rename a directory", |app, path, mine| app.rename(&mine.with_file_name("dir"), path, 0)),
    ];
    for (what, call) in calls {
        for covered in ["hr", "pub/a.key", "new.key", "pub/b.key"] {
            let answer = errno(call(&app, &bob.path(covered), &bob.path("mine.txt")));
            assert_eq!(answer, Some(EACCES), "{what} at {covered}");
        }
    }
    assert_eq!(bob.read("mine.txt"), b"mine");
    assert_eq!(bob.list("pub"), ["doc.txt"]);
}

/// A viewer reads; each way of writing is EACCES, the mode says so, and access(2) does.
#[test]
fn a_viewer_reads_and_writes_nothing() {
    let Some((workspace, bob)) = restricted() else { return };
    workspace.run(&["access", "grant", "bob", "viewer", "hr"]).ok();
    eventually("the directory", || bob.path("hr").exists().then_some(()));
    let (app, pay) = (bob.app(), bob.path("hr/pay.txt"));
    assert_eq!(
        (app.read_file(&pay).unwrap(), bob.list("hr")),
        (b"pay".to_vec(), vec!["deep".into(), "pay.txt".into()])
    );
    let calls: [(&str, Call); 14] = [
        ("open for write", |app, path, _| app.open(path, O_WRONLY).map(drop)),
        ("open for both", |app, path, _| app.open(path, O_RDWR).map(drop)),
        ("open to cut", |app, path, _| app.open(path, O_RDONLY | O_TRUNC).map(drop)),
        ("cut", |app, path, _| app.truncate(path, 0)),
        ("chmod", |app, path, _| app.chmod(path, 0o600)),
        ("times", |_, path, _| kernel::set_times(path, None, 0)),
        ("unlink", |app, path, _| app.unlink(path)),
        ("rename away", |app, path, free| app.rename(path, free, 0)),
        ("rename over", |app, path, free| app.rename(&free.with_file_name("top.txt"), path, 0)),
        ("exchange", |app, path, free| app.rename(&free.with_file_name("top.txt"), path, RENAME_EXCHANGE)),
        ("create beside", |app, path, _| app.open(&path.with_file_name("new"), O_CREAT | O_RDWR).map(drop)),
        ("mkdir beside", |_, path, _| kernel::mkdir(&path.with_file_name("new"))),
        ("access", |app, path, _| app.access(path, W_OK)),
        ("move the directory", |app, path, free| app.rename(path.parent().unwrap(), free, 0)),
    ];
    for (what, call) in calls {
        assert_eq!(errno(call(&app, &pay, &bob.path("free"))), Some(EACCES), "{what}");
    }
    let mode = |name: &str| std::fs::metadata(bob.path(name)).unwrap().permissions().mode() & 0o222;
    assert_eq!((mode("hr/pay.txt"), mode("hr"), mode("top.txt") & 0o200), (0, 0, 0o200));
    assert_eq!((bob.drafts(), bob.read("hr/pay.txt")), (vec![], b"pay".to_vec()));
    let line = run_as(bob.at(), Some("bob"), &["checkout", "hr/pay.txt"]).refused(1);
    assert!(line.contains("hr/pay.txt: you (bob) have no right to change it"), "{line}");
}

/// Rules that change apply to live mounts: names come and go, open handles read on, and writing through them is refused.
#[test]
fn changed_rules_apply_to_live_mounts() {
    let Some((workspace, bob)) = restricted() else { return };
    let (app, pay) = (bob.app(), bob.path("hr/pay.txt"));
    assert_eq!(app.open(&pay, O_RDONLY), Err(ENOENT), "the kernel remembers that it isn't there");
    workspace.run(&["access", "grant", "bob", "editor", "hr/**"]).ok();
    eventually("the name", || bob.path("hr/pay.txt").exists().then_some(()));
    let reader = app.open(&pay, O_RDONLY).unwrap();
    let writer = app.open(&bob.path("hr/deep/x.txt"), O_RDWR).unwrap();
    app.write(writer, b"bob's").unwrap();
    workspace.run(&["access", "revoke", "bob", "hr/**"]).ok();
    eventually("the name's end", || (!bob.path("hr").exists()).then_some(()));
    assert_eq!((app.open(&pay, O_RDONLY), bob.list("").contains(&"hr".into())), (Err(ENOENT), false));
    assert_eq!(app.read_all(reader).unwrap(), b"pay", "who has it open reads on");
    assert_eq!(app.metadata(reader).len(), 3);
    assert_eq!(app.write(writer, b"more"), Err(EACCES), "who has a handle knows the file");
    app.close(writer).unwrap();
    assert_eq!(bob.drafts(), [""; 0], "a draft that he may not see is not told");
    workspace.run(&["access", "grant", "bob", "editor", "hr/**"]).ok();
    eventually("the draft", || (bob.drafts() == ["hr/deep/x.txt"]).then_some(()));
    assert!(bob.read("hr/deep/x.txt").starts_with(b"bob's"), "and nothing of it is lost");
}

/// A directory that holds what one may not see can be neither moved nor removed.
#[test]
fn nothing_hidden_moves_along() {
    let Some((workspace, bob)) = restricted() else { return };
    let app = bob.app();
    app.unlink(&bob.path("pub/doc.txt")).unwrap();
    assert_eq!(bob.list("pub"), [""; 0]);
    assert_eq!(kernel::rmdir(&bob.path("pub")), Err(ENOTEMPTY));
    assert_eq!(app.rename(&bob.path("pub"), &bob.path("moved"), 0), Err(EACCES));
    workspace.run(&["access", "grant", "bob", "editor", "*.key"]).ok();
    eventually("the key", || bob.path("pub/a.key").exists().then_some(()));
    app.rename(&bob.path("pub"), &bob.path("moved"), 0).unwrap();
    assert_eq!(bob.list("moved"), ["a.key"]);
}

/// What somebody moved in his checkout stays as hidden as its place in the head tree, and a check-in of it is refused.
#[test]
fn a_rename_uncovers_nothing() {
    let Some((workspace, bob)) = restricted() else { return };
    let app = bob.app();
    app.rename(&bob.path("pub/doc.txt"), &bob.path("mine.txt"), 0).unwrap();
    app.overwrite(&bob.path("top.txt"), b"bob's").unwrap();
    workspace.run(&["access", "restrict", "pub/doc.txt"]).ok();
    eventually("the name's end", || (!bob.path("mine.txt").exists()).then_some(()));
    assert_eq!(
        (bob.drafts(), bob.list("")),
        (vec!["top.txt".to_owned()], vec!["pub".into(), "top.txt".into()])
    );
    // A check-in of everything takes what he may see.
    let report = bob.check_in();
    assert_eq!(report["items"].as_array().unwrap().len(), 1, "{report}");
    assert!(workspace.run(&["cat", "pub/doc.txt"]).ok() == "doc");
    // An editor of both places may publish it.
    let ada = workspace.mount("ada");
    ada.app().rename(&ada.path("hr/pay.txt"), &ada.path("pay.txt"), 0).unwrap();
    ada.check_in();
    eventually("what was published", || bob.path("pay.txt").exists().then_some(()));
    let log = run_as(&workspace.root(), Some("bob"), &["log", "--json"]).json();
    assert!(!log.to_string().contains("hr"), "{log}");
}

/// A draft that one may only read by now isn't checked in; it can be reverted, and its lease goes back.
#[test]
fn a_lost_right_refuses_the_check_in_and_keeps_the_draft() {
    let Some((workspace, bob)) = restricted() else { return };
    bob.app().overwrite(&bob.path("top.txt"), b"bob's").unwrap();
    workspace.run(&["access", "restrict", "top.txt"]).ok();
    workspace.run(&["access", "grant", "*", "viewer", "top.txt"]).ok();
    eventually("the mode", || bob.app().open(&bob.path("top.txt"), O_WRONLY).is_err().then_some(()));
    assert_eq!(bob.read("top.txt"), b"bob's");
    let line = bob.run(&["checkin", "-m", "x"]).refused(1);
    assert!(line.contains("top.txt: you (bob) have no right to change it"), "{line}");
    assert_eq!(workspace.run(&["cat", "top.txt"]).ok(), "top");
    bob.run(&["revert", "top.txt"]).ok();
    assert_eq!((bob.read("top.txt"), workspace.run(&["leases"]).ok()), (b"top".to_vec(), String::new()));
}

/// What a run of the program said, without the name that it was asked for.
fn answer(ran: &Ran, name: &str) -> (i32, String, String) {
    let told = |text: &str| text.replace(name, "NAME");
    (ran.status, told(&ran.stdout), told(&ran.stderr))
}

/// The id of an artifact, as the owner finds it.
fn id_of(mount: &Mount, name: &str) -> String {
    format!("artifact:{}", mount.xattr(name, "user.artifact.id").unwrap())
}

/// Each command answers in the same words, with the same status, about what is hidden and about what isn't there: with
/// a mount and without, by path and by id.
#[test]
fn hidden_and_missing_answer_alike() {
    let Some((workspace, bob)) = restricted() else { return };
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("hr/pay.txt"), b"ada's").unwrap();
    let by_path: [&[&str]; 16] = [
        &["status", "NAME"],
        &["checkout", "NAME"],
        &["checkin", "NAME", "-m", "x"],
        &["revert", "NAME"],
        &["save-as", "NAME", "free.txt"],
        &["settle", "NAME"],
        &["add", "NAME"],
        &["log", "NAME"],
        &["cat", "NAME"],
        &["cat", "NAME@@1"],
        &["cat", "NAME@@9"],
        &["restore", "NAME@@1"],
        &["lease", "show", "NAME"],
        &["lease", "acquire", "NAME"],
        &["lease", "release", "NAME"],
        &["access", "list", "NAME"],
    ];
    let by_key: [&[&str]; 3] =
        [&["lease", "show", "NAME"], &["lease", "acquire", "NAME"], &["lease", "release", "NAME"]];
    let (hidden_id, missing_id) =
        (id_of(&ada, "hr/pay.txt"), "artifact:01890a5d-ac96-774b-bcce-b302099a8057".to_owned());
    let ask = |dir: &Path, command: &[&str], name: &str| {
        let command: Vec<String> = command.iter().map(|word| word.replace("NAME", name)).collect();
        answer(&run_as(dir, Some("bob"), &command), name)
    };
    for dir in [bob.at().to_owned(), workspace.root()] {
        for command in by_path {
            for (hidden, missing) in [("hr/pay.txt", "hx/pay.txt"), ("pub/a.key", "pub/a.kex"), ("hr", "hx")]
            {
                let answers = (ask(&dir, command, hidden), ask(&dir, command, missing));
                assert_eq!(answers.0, answers.1, "{command:?} {hidden} in {}", dir.display());
                assert_eq!(answers.0.0, 1, "{command:?} {answers:?}");
            }
        }
        for command in by_key {
            let answers = (ask(&dir, command, &hidden_id), ask(&dir, command, &missing_id));
            assert_eq!(answers.0, answers.1, "{command:?} by id");
        }
    }
    // Names that can't be his are refused by the rule alone.
    for new in ["hr/pay.txt", "hr/free.txt"] {
        let line =
            run_as(&workspace.root(), Some("bob"), &["import", "-m", "x", "--into", new, "/etc/hostname"]);
        assert!(line.refused(1).contains("no right to change it"));
    }
    assert_eq!(ada.read("hr/pay.txt"), b"ada's");
}

/// Lists tell nothing of what is hidden: log, leases, status, recovery copies; the owner's tell all.
#[test]
fn lists_leave_out_what_is_hidden() {
    let Some((workspace, bob)) = restricted() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    app.overwrite(&ada.path("hr/pay.txt"), b"first").unwrap();
    ada.run(&["revert", "hr/pay.txt"]).ok();
    app.overwrite(&ada.path("hr/pay.txt"), b"second").unwrap();
    ada.run(&["checkin", "-m", "secret raise"]).ok();
    app.overwrite(&ada.path("hr/pay.txt"), b"third").unwrap();
    app.save(&ada.path("hr/new.txt"), O_CREAT, b"new").unwrap();
    let told = |who: Option<&str>, command: &[&str]| run_as(&workspace.root(), who, command).ok();
    for command in [&["log"][..], &["leases"], &["status"], &["recovered"], &["access", "list"]] {
        for json in [&[][..], &["--json"]] {
            let command = [command, json].concat();
            let text = told(Some("bob"), &command);
            assert!(!["hr", "secret", ".key"].iter().any(|word| text.contains(word)), "{command:?}: {text}");
        }
        let all = told(None, command);
        assert!(all.contains("hr"), "{command:?} of the owner: {all}");
    }
    let copies: Value = serde_json::from_str(&told(None, &["recovered", "--json"])).unwrap();
    let id = copies[0]["id"].as_str().unwrap();
    let restore = |id: &str| {
        let dest = workspace.beside("dest");
        let args = ["recovered", "restore", id, dest.to_str().unwrap()];
        answer(&run_as(&workspace.root(), Some("bob"), &args), id)
    };
    assert_eq!(restore(id), restore("nothing"));
    assert_eq!(bob.list(""), ["pub", "top.txt"]);
}

/// Only an owner changes rules, over what his grant spells out; nobody can take the last owner's right away.
#[test]
fn rules_are_their_owners() {
    let Some((workspace, _bob)) = restricted() else { return };
    let access =
        |who: Option<&str>, args: &[&str]| run_as(&workspace.root(), who, &[&["access"], args].concat());
    access(None, &["grant", "ada", "owner", "media/**"]).ok();
    for refused in [
        &["grant", "ada", "owner", "**"][..],
        &["grant", "bob", "viewer", "hr/**"],
        &["grant", "bob", "viewer", "*.psd"],
        &["restrict", "media"],
        &["restrict", "--undo", "hr/**"],
        &["revoke", "bob"],
    ] {
        let line = access(Some("ada"), refused).refused(1);
        assert!(line.contains("ada") || line.contains("bob: has no grant"), "{line}");
    }
    access(Some("ada"), &["restrict", "media/raw/**"]).ok();
    access(Some("ada"), &["grant", "bob", "editor", "media/raw/**"]).ok();
    let listed = access(Some("bob"), &["list", "--json"]).json();
    assert_eq!(listed["grants"][0]["glob"], "media/raw/**");
    assert_eq!(
        (listed["role"].as_str(), listed["restrictions"].as_array().unwrap().len()),
        (Some("editor"), 0)
    );
    let listed = access(Some("ada"), &["list", "--json"]).json();
    assert_eq!(
        (listed["grants"].as_array().unwrap().len(), listed["restrictions"].as_array().unwrap().len()),
        (2, 1)
    );
    let me = access(None, &["list", "--json"]).json()["principal"].as_str().unwrap().to_owned();
    for lockout in [&["revoke", &me][..], &["revoke", &me, "**"], &["grant", &me, "editor", "**"]] {
        assert!(access(None, lockout).refused(1).contains("nobody would own everything"));
    }
    access(None, &["grant", "eve", "owner", "**"]).ok();
    access(Some("eve"), &["revoke", "ada"]).ok();
    assert!(access(None, &["revoke", "ada"]).refused(1).contains("has no grant"));
}

/// Acting as somebody else needs the right to everything: nobody's rights grow by it.
#[test]
fn only_owners_act_as_others() {
    let Some((workspace, _bob)) = restricted() else { return };
    for nobody in ["*", "a@b", "a/b"] {
        let line = run_as(&workspace.root(), Some(nobody), &["status"]).refused(1);
        assert!(line.contains("can't act as") || line.contains("can't be a principal"), "{line}");
    }
    assert_eq!(
        run_as(&workspace.root(), Some("bob"), &["access", "list", "--json"]).json()["principal"],
        "bob"
    );
}

/// A new name is there at once for those who may see it, and a name that is made is not told as taken.
#[test]
fn an_editor_works_as_everywhere() {
    let Some((workspace, _bob)) = restricted() else { return };
    workspace.run(&["access", "grant", "eve", "editor", "hr/**"]).ok();
    let eve = workspace.mount_judged("eve");
    let app = eve.app();
    app.save(&eve.path("hr/new.txt"), O_CREAT | O_EXCL, b"new").unwrap();
    assert_eq!(app.open(&eve.path("hr/new.txt"), O_CREAT | O_EXCL | O_RDWR), Err(EEXIST));
    app.overwrite(&eve.path("hr/pay.txt"), b"eve's").unwrap();
    kernel::mkdir(&eve.path("hr/dir")).unwrap();
    app.rename(&eve.path("hr/new.txt"), &eve.path("hr/dir/new.txt"), 0).unwrap();
    app.rename(&eve.path("hr/dir"), &eve.path("hr/moved"), 0).unwrap();
    app.rename(&eve.path("hr/deep/x.txt"), &eve.path("x.txt"), 0).unwrap();
    eve.check_in();
    assert_eq!(eve.list("hr"), ["deep", "moved", "pay.txt"]);
    assert_eq!(workspace.run(&["cat", "hr/moved/new.txt"]).ok(), "new");
}
