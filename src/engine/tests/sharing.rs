//! What the catalog knows of a shared store. What goes over the wire is tested on mounts: `tests/it/mounted/remote.rs`.

use super::support::*;
use crate::engine::{CheckoutOps, Unshared};
use crate::model::{ChangeNumber, Kind, Scratch, Timestamp};

/// Each change counts with its versions' blobs and its manifest until it is noted; a failure that goes on keeps its time.
#[test]
fn a_change_is_unshared_until_it_is_noted_and_a_failure_keeps_its_time() {
    let desk = desk();
    let ada = desk.person("ada@desk");
    for (name, text) in [("a", "12345"), ("b", "12345"), ("c", "123")] {
        ada.create(name, Kind::File, Scratch::No);
        ada.write(name, text);
    }
    ada.ops.check_in(&everything("new")).unwrap();
    ada.rename("c", "d");
    ada.ops.check_in(&everything("moved")).unwrap();
    let catalog = desk.workspace.catalog();
    let unshared =
        |changes, blobs, bytes| assert_eq!(catalog.unshared().unwrap(), Unshared { changes, blobs, bytes });
    unshared(2, 4, 8);
    let changes = catalog.unshared_changes().unwrap();
    let blobs = |change| catalog.blobs_of_change(change).unwrap().len();
    assert_eq!(changes.iter().map(|change| blobs(*change)).collect::<Vec<_>>(), [3, 1]);
    catalog.set_shared(changes[0]).unwrap();
    unshared(1, 1, 0);
    catalog.set_shared(changes[1]).unwrap();
    unshared(0, 0, 0);
    assert_eq!(catalog.unshared_changes().unwrap(), Vec::<ChangeNumber>::new());
    for (failure, known) in [
        (None, None),
        (Some((5, "down")), Some((5, "down"))),
        (Some((6, "down")), Some((5, "down"))),
        (Some((7, "slow")), Some((7, "slow"))),
        (None, None),
    ] {
        catalog.set_share_failure(failure.map(|(at, text)| (Timestamp(at), text))).unwrap();
        let known = known.map(|(at, text): (i64, &str)| (Timestamp(at), text.to_owned()));
        assert_eq!(catalog.share_failure().unwrap(), known);
    }
    assert_eq!(desk.workspace.sharing_status().unwrap(), None, "no shared store is configured");
}
