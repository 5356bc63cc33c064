//! Each step of bringing a save into the store fails, or is the last one of its process.

use std::sync::Arc;

use super::support::*;
use crate::blobs::{BlobError, Fault, FaultPlan};
use crate::engine::{CheckoutOps, CollectRequest, EngineError};

/// Checks a save in while the step of this number has a fault; returns whether there was such a step.
///
/// Whatever happens, the next process has the whole save: as the head if the check-in said so, else as the draft.
fn check_in_with(fault: Fault, number: usize, live: bool) -> bool {
    let plan = Arc::new(FaultPlan::new());
    let desk = desk().reopened(Some(plan.clone()));
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    let file = if live { ada.write_direct("a", "saved") } else { ada.write("a", "saved") };
    plan.arm(number, fault);
    let checked_in = ada.ops.check_in(&everything("m"));
    let reached = plan.seen().len() > number;
    let checkout = ada.checkout;
    drop(ada);
    let desk = desk.reopened(None);
    // A lock whose owner died before he said who he is goes after a minute.
    desk.let_pass_ms(2 * 60 * 1000);
    let copies = desk.workspace.recover_checkout(checkout).unwrap();
    assert!(copies.is_empty(), "{fault:?} at {number}: {copies:?}");
    let ada = desk.person("ada@home");
    match checked_in {
        Ok(_) => assert_eq!(ada.get("a").unwrap().head.unwrap().0, 2, "{fault:?} at {number}"),
        Err(_) => {
            assert_eq!(desk.read("a", None), "a", "{fault:?} at {number}");
            ada.ops.check_in(&everything("again")).unwrap();
        }
    }
    assert_eq!(desk.read("a", None), "saved", "{fault:?} at {number}");
    assert!(!file.exists());
    desk.workspace
        .collect(&CollectRequest { grace_ms: 1, dry_run: false }, &|| Ok(Vec::new()), &|_, _| ())
        .unwrap();
    assert!(names_in(&desk.workspace.layout().staging()).is_empty(), "{fault:?} at {number}");
    assert!(desk.workspace.fsck(false, &|_| ()).unwrap().is_clean(), "{fault:?} at {number}");
    reached
}

#[test]
fn no_failed_step_of_a_check_in_loses_the_save() {
    const ENOSPC: i32 = 28;
    const EIO: i32 = 5;
    for fault in [Fault::Error(ENOSPC), Fault::Error(EIO), Fault::CrashBefore, Fault::CrashAfter] {
        for live in [false, true] {
            let steps = (0..).take_while(|number| check_in_with(fault, *number, live)).count();
            assert!(steps >= 3, "{fault:?}: a save takes a sync, a rename and a sync at least, not {steps}");
        }
    }
}

/// Who checks in hears of the document, not of a file of ours, and may save it again.
#[test]
fn a_save_that_the_disk_lost_is_named() {
    const EIO: i32 = 5;
    let plan = Arc::new(FaultPlan::new());
    let desk = desk().reopened(Some(plan.clone()));
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    let is_lost = |number| {
        ada.write("a", "lost");
        plan.arm(number, Fault::Error(EIO));
        let error = ada.ops.check_in(&everything("m")).unwrap_err();
        assert!(error.to_string().starts_with("a: "), "step {number}: {error}");
        matches!(error, EngineError::NotStored { source: BlobError::Sync { .. }, .. })
    };
    assert!((0..5).any(is_lost));
    let again = ada.ops.check_in(&everything("m")).unwrap_err();
    assert!(matches!(again, EngineError::NotStored { source: BlobError::Tainted { .. }, .. }), "{again:?}");
    ada.write("a", "saved again");
    ada.ops.check_in(&everything("m")).unwrap();
    assert_eq!(desk.read("a", None), "saved again");
}
