//! Holder, expiry and version as extended attributes: their names, values, states and listing.

use std::process::Command;

use libc::{O_CREAT, O_TRUNC, O_WRONLY};

use super::{Mount, Workspace};
use crate::kernel::{self, ENODATA, ENOTSUP};

fn attribute(mount: &Mount, name: &str) -> Option<String> {
    mount.xattr("doc.txt", name)
}

fn listed(mount: &Mount) -> Vec<String> {
    let mut names = kernel::listxattr(&mount.path("doc.txt")).unwrap();
    names.sort();
    names
}

fn getfattr_dump(mount: &Mount) -> String {
    let output = Command::new("getfattr").args(["-d", "doc.txt"]).current_dir(mount.at()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A version that nobody holds tells its identity and content, and lists nothing.
#[test]
fn of_a_free_version() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let id = attribute(&ada, "user.artifact.id").unwrap();
    assert_eq!((id.len(), id.as_bytes()[14]), (36, b'7'), "a UUID of version 7: {id}");
    assert_eq!(attribute(&ada, "user.artifact.version").as_deref(), Some("1"));
    assert_eq!(attribute(&ada, "user.artifact.base").as_deref(), Some("1"));
    assert_eq!(attribute(&ada, "user.artifact.draft").as_deref(), Some("none"));
    assert_eq!(attribute(&ada, "user.artifact.digest"), Some(format!("sha256:{}", super::sha256(b"old"))));
    assert_eq!(attribute(&ada, "user.lease.state").as_deref(), Some("free"));
    for absent in ["user.lease.holder", "user.lease.expires", "user.lease.generation"] {
        assert_eq!(attribute(&ada, absent), None, "{absent}");
    }
    assert_eq!(listed(&ada), [""; 0]);
    assert_eq!(getfattr_dump(&ada), "");
}

/// A draft goes through its states, and its holder and others are told who has the lease until when.
#[test]
fn of_a_draft() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"new").unwrap();
    assert_eq!(attribute(&ada, "user.artifact.draft").as_deref(), Some("dirty"));
    app.close(fd).unwrap();
    ada.run(&["settle"]).ok();
    assert_eq!(attribute(&ada, "user.artifact.draft").as_deref(), Some("saved"));
    assert_eq!(attribute(&ada, "user.artifact.version"), None, "a draft is no version");
    assert_eq!(attribute(&ada, "user.artifact.base").as_deref(), Some("1"));
    assert_eq!(attribute(&ada, "user.artifact.digest"), Some(format!("sha256:{}", super::sha256(b"new"))));
    assert_eq!(attribute(&ada, "user.lease.state").as_deref(), Some("mine"));
    assert_eq!(attribute(&bob, "user.lease.state").as_deref(), Some("held"));
    assert_eq!(attribute(&bob, "user.artifact.draft").as_deref(), Some("none"), "others see the version");
    assert_eq!(attribute(&bob, "user.artifact.version").as_deref(), Some("1"));
    for name in ["user.lease.holder", "user.lease.expires", "user.lease.generation"] {
        assert!(attribute(&ada, name).is_some(), "{name}");
        assert_eq!(attribute(&ada, name), attribute(&bob, name), "{name}");
    }
    assert_eq!(attribute(&ada, "user.lease.holder").as_deref(), Some(ada.holder()));
    assert!(attribute(&ada, "user.lease.generation").unwrap().parse::<u64>().unwrap() > 0);
}

/// The expiry is RFC 3339 in UTC, and the ttl ahead.
#[test]
fn the_expiry_is_a_time_in_utc() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount_with("ada", &["--ttl", "1h"]);
    let before = jiff::Timestamp::now();
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    let expires = attribute(&ada, "user.lease.expires").unwrap();
    assert!(expires.ends_with('Z'), "{expires}");
    let seconds = expires.parse::<jiff::Timestamp>().unwrap().as_second() - before.as_second();
    assert!((3_595..=3_700).contains(&seconds), "{expires}");
}

/// A new document is `added`, and has neither version nor base.
#[test]
fn of_a_new_document() {
    let Some(workspace) = Workspace::with(&[("other.txt", b"x")]) else { return };
    let ada = workspace.mount("ada");
    ada.app().save(&ada.path("doc.txt"), O_CREAT, b"new").unwrap();
    assert_eq!(attribute(&ada, "user.artifact.draft").as_deref(), Some("added"));
    assert_eq!(attribute(&ada, "user.lease.state").as_deref(), Some("mine"));
    assert_eq!(
        (attribute(&ada, "user.artifact.version"), attribute(&ada, "user.artifact.base")),
        (None, None)
    );
    let id = attribute(&ada, "user.artifact.id");
    ada.check_in();
    assert_eq!(attribute(&ada, "user.artifact.id"), id, "the identity outlives the check-in");
    assert_eq!(attribute(&ada, "user.artifact.version").as_deref(), Some("1"));
}

/// While a lease is held, holder and expiry are listed, and nothing else: listed ones travel with copies.
#[test]
fn holder_and_expiry_are_listed_while_held() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    for mount in [&ada, &bob] {
        assert_eq!(listed(mount), ["user.lease.expires", "user.lease.holder"]);
        let dump = getfattr_dump(mount);
        assert!(dump.contains("user.lease.holder=\"ada@desk\"\n"), "{dump}");
        assert!(dump.contains("user.lease.expires=\"20"), "{dump}");
        assert!(!dump.contains("artifact"), "{dump}");
    }
    ada.check_in();
    assert_eq!(listed(&ada), [""; 0]);
}

/// Policy may list all of them, or none; they answer by name in any case.
#[test]
fn policy_says_what_is_listed() {
    let Some(workspace) = Workspace::with_document() else { return };
    workspace.set_policy("list_xattrs = \"all\"\n");
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    ada.run(&["settle"]).ok();
    let all = listed(&ada);
    for name in [
        "user.lease.holder",
        "user.lease.state",
        "user.lease.generation",
        "user.artifact.id",
        "user.artifact.base",
    ] {
        assert!(all.contains(&name.to_owned()), "{name} in {all:?}");
    }
    assert!(all.iter().all(|name| attribute(&ada, name).is_some()), "what is listed has a value: {all:?}");
    workspace.set_policy("list_xattrs = \"none\"\n");
    let bob = workspace.mount("bob");
    assert_eq!(listed(&bob), [""; 0]);
    assert_eq!(attribute(&bob, "user.lease.holder").as_deref(), Some("ada@desk"));
}

/// None can be set or removed, and the refusal is one that copying programs know; others are absent.
#[test]
fn none_can_be_set() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let doc = ada.path("doc.txt");
    for name in ["user.lease.holder", "user.artifact.id", "user.of.mine"] {
        assert_eq!(kernel::setxattr(&doc, name, b"x"), Err(ENOTSUP), "set {name}");
    }
    for name in ["user.lease.holder", "user.artifact.id", "user.of.mine"] {
        assert_eq!(kernel::removexattr(&doc, name), Err(ENOTSUP), "remove {name}");
    }
    for name in ["user.of.mine", "user.artifact.nothing", "user.lease.holder"] {
        assert_eq!(kernel::getxattr(&doc, name), Err(ENODATA), "get {name}");
    }
    assert_eq!(
        attribute(&ada, "user.artifact.version").as_deref(),
        Some("1"),
        "the calls stay on for the mount"
    );
}

/// There are no ACLs, by the system call and by the tool, on files and directories: the mode is all there is.
#[test]
fn there_are_no_acls() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("dir/x", b"x")]) else { return };
    let ada = workspace.mount("ada");
    // The header of an ACL, version 2, and entries for the owner, the group and others (`linux/posix_acl_xattr.h`).
    let entry = |tag: u16| [&tag.to_le_bytes()[..], &6_u16.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    let acl = [2_u32.to_le_bytes().to_vec(), entry(1), entry(4), entry(32)].concat();
    let both = ["system.posix_acl_access", "system.posix_acl_default"];
    // Only directories have default ACLs (acl(5)): the kernel itself refuses others.
    for (name, attributes) in [("doc.txt", &both[..1]), ("dir", &both)] {
        for attribute in attributes {
            assert_eq!(
                kernel::setxattr(&ada.path(name), attribute, &acl),
                Err(ENOTSUP),
                "{attribute} of {name}"
            );
            assert!(kernel::getxattr(&ada.path(name), attribute).is_err(), "{attribute} of {name}");
        }
    }
    assert_eq!(ada.drafts(), [""; 0], "nothing has changed");
}

/// Copying with all attributes succeeds, in the mount and out of it.
#[test]
fn archives_can_be_copied() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    for dest in [ada.path("copy.txt"), workspace.beside("copy.txt")] {
        let output = Command::new("cp").arg("-a").arg(ada.path("doc.txt")).arg(&dest).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(std::fs::read(dest).unwrap(), b"new");
    }
}

/// Scratch belongs to nobody: it has no lease and no identity.
#[test]
fn of_scratch() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    ada.app().save(&ada.path("doc.txt~"), O_CREAT, b"backup").unwrap();
    for name in ["user.lease.holder", "user.lease.state", "user.artifact.id", "user.artifact.version"] {
        assert_eq!(ada.xattr("doc.txt~", name), None, "{name}");
    }
}
