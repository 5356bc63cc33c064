//! Who a process acts as, and what becomes of rules that are lost. What each command may see is tested on mounts:
//! `tests/it/mounted/access.rs`.

use super::support::*;
use crate::engine::{EngineError, Workspace, rescue};
use crate::model::{AccessGlob, Grant, Role};
use crate::sys;

fn open(desk: &Desk, who: &[&str]) -> Result<Workspace, EngineError> {
    let workspace = Workspace::open(desk.workspace.root(), &desk.env)?;
    who.iter().try_fold(workspace, |workspace, name| workspace.acting_as(name))
}

/// Who owns everything may act as anybody, and that one as nobody else: rights only shrink.
#[test]
fn acting_as_somebody_else_raises_no_rights() {
    let desk = desk();
    desk.import(&["doc", "hr/pay"]);
    let me = desk.workspace.identity().principal.to_string();
    desk.workspace.restrict_access(&AccessGlob::new("hr").unwrap(), false).unwrap();
    let bob = open(&desk, &["bob"]).unwrap();
    assert!(matches!(bob.read_version(&path("hr/pay"), None), Err(EngineError::NotFound(_))));
    assert!(bob.read_version(&path("doc"), None).is_ok());
    for chain in [&["bob", &me][..], &["bob", "root"], &["bob", "eve"], &["*"], &["a/b"]] {
        assert!(matches!(open(&desk, chain), Err(EngineError::Refused(_))), "{chain:?}");
    }
    assert!(open(&desk, &["bob", "bob"]).is_ok(), "himself");
    let all = AccessGlob::new("**").unwrap();
    let grant = Grant { principal: "bob".parse().unwrap(), role: Role::Owner, glob: all };
    desk.workspace.grant_access(&grant).unwrap();
    assert!(open(&desk, &["bob", "eve"]).is_ok());
}

/// A rescued catalog has lost its rules: whoever rescued it owns everything, and where others share the files they see
/// nothing until he says so.
#[test]
fn lost_rules_are_no_open_door() {
    for shared in [false, true] {
        let mut desk = desk();
        if shared {
            let root = desk.dir.path().join("shared");
            let group = sys::effective_ids().1.to_string();
            desk.workspace = Workspace::init_shared(&root, &group, &desk.env).unwrap().into();
        }
        desk.import(&["doc"]);
        std::fs::write(desk.workspace.layout().catalog(), "no database any more".repeat(1000)).unwrap();
        rescue(desk.workspace.root(), &desk.env).unwrap();
        let desk = desk.reopened(None);
        assert!(desk.workspace.catalog().access_records().unwrap().rules().has_owner());
        assert_eq!(desk.read("doc", None), "doc");
        let bob = open(&desk, &["bob"]).unwrap();
        assert_eq!(bob.read_version(&path("doc"), None).is_err(), shared);
        assert_eq!(bob.log(None, None).unwrap().is_empty(), shared);
    }
}
