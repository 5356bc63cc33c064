//! What each key of the policy does to leases, by a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leasehold::clock::{Clock, ManualClock};
use leasehold::engine::EngineError;
use leasehold::model::{ArtifactPath, Instant};
use leasehold::vfs::{RenameMode, VfsError};

use super::World;
use super::desk::{Desk, Open};
use super::reference::TTL_MS;

const NAME: &str = "a.txt";
/// `grace`, as it is by default.
const GRACE_MS: i64 = 5_000;

impl World {
    /// Two mounts under a policy whose leases last [`TTL_MS`].
    fn governed(policy: &str) -> Self {
        Self::with(None, &format!("ttl = '{TTL_MS}ms'\n{policy}"))
    }

    /// Writes another policy, of which both mounts hear.
    fn set_policy(&self, policy: &str) {
        std::fs::write(self.dir.path().join(".leasehold/config.toml"), policy).unwrap();
        self.desks.iter().for_each(Desk::policy_written);
    }

    fn left_ms(&self, name: &str) -> i64 {
        self.desks[0].lease(name).map_or(0, |lease| lease.expires_boot_ms - self.clock.now().boot_ms)
    }

    fn pass(&self, ms: i64) {
        self.clock.advance_ms(ms);
        for desk in &self.desks {
            desk.renew();
            desk.tick();
        }
    }

    /// Whether a lease keeps the second holder from opening a name for writing.
    fn is_closed_to_bob(&self, name: &str) -> bool {
        match self.desks[1].open_for_write(name) {
            Ok(open) => {
                self.desks[1].close(open).unwrap();
                false
            }
            Err(VfsError::Held { .. }) => true,
            Err(other) => panic!("{name}: {other:?}"),
        }
    }
}

fn is_lost(result: Result<(), VfsError>) -> bool {
    matches!(result, Err(VfsError::LeaseLost))
}

fn has_problem(world: &World, who: usize, kind: &str) -> bool {
    world.desks[who].problems().iter().any(|problem| problem.starts_with(kind))
}

/// A lease lasts as long as the last rule for its path says, and never longer than the policy permits.
#[test]
fn a_rule_gives_its_paths_their_time() {
    let rules =
        "max_ttl = '2m'\n[[rule]]\npaths = ['b.*']\nttl = '10s'\n[[rule]]\npaths = ['c.*']\nttl = '1h'\n";
    for (asked_ms, expected_ms) in
        [(None, [TTL_MS, 10_000, 120_000]), (Some(30_000), [30_000; 3]), (Some(999_000), [120_000; 3])]
    {
        let world = World::with(asked_ms, &format!("ttl = '{TTL_MS}ms'\n{rules}"));
        for (name, expected_ms) in ["a.txt", "b.txt", "c.txt"].into_iter().zip(expected_ms) {
            world.desks[0].save(name, b"ada's").unwrap();
            assert_eq!(world.left_ms(name), expected_ms, "{name}, asked for {asked_ms:?}");
        }
    }
}

/// Opening alone takes no lease where a rule says so, as with the old key.
#[test]
fn a_rule_may_wait_for_the_first_write() {
    let world = World::governed("[[rule]]\npaths = ['a.*']\nlease = 'on-first-write'");
    let open = world.desks[0].open_for_write(NAME).unwrap();
    assert!(world.desks[0].lease(NAME).is_none());
    assert!(!world.is_closed_to_bob(NAME));
    world.desks[0].write(open, 0, b"A").unwrap();
    assert_eq!(world.left_ms(NAME), TTL_MS);
    let other = world.desks[0].open_for_write("b.txt").unwrap();
    assert!(world.is_closed_to_bob("b.txt"), "no rule is about it");
    [open, other].into_iter().for_each(|open| world.desks[0].close(open).unwrap());
}

/// With `never` no use renews a lease, but who asks for it by name does; when it has ended, the next use takes a new one.
#[test]
fn use_renews_nothing_where_policy_says_never() {
    let world = World::governed("[[rule]]\npaths = ['a.*']\nrenew = 'never'");
    let ada = &world.desks[0];
    let open = ada.begin(NAME, b"first").unwrap();
    let generation = ada.lease(NAME).unwrap().generation;
    world.pass(TTL_MS / 2);
    ada.write(open, 5, b" second").unwrap();
    ada.fsync(open).unwrap();
    ada.chmod(NAME, 0o600).unwrap();
    ada.close(ada.open_for_write(NAME).unwrap()).unwrap();
    assert_eq!(world.left_ms(NAME), TTL_MS / 2);
    ada.ops().checkout(&[ArtifactPath::parse(NAME).unwrap()]).unwrap();
    assert_eq!(world.left_ms(NAME), TTL_MS);
    world.pass(TTL_MS);
    ada.write(open, 12, b" third").unwrap();
    assert_ne!(ada.lease(NAME).unwrap().generation, generation, "a new grant is a new generation");
    ada.close(open).unwrap();
}

/// With `open` a lease doesn't end while somebody has the file open for writing, whether he writes or not; it ends its
/// time after he has closed it.
#[test]
fn an_open_file_keeps_its_lease_where_policy_says_so() {
    for rule in ["renew = 'open'", "[[rule]]\npaths = ['a.*']\nrenew = 'open'"] {
        let world = World::governed(rule);
        let ada = &world.desks[0];
        let open = ada.begin(NAME, b"unsaved").unwrap();
        let generation = ada.lease(NAME).unwrap().generation;
        for _ in 0..10 {
            world.pass(TTL_MS / 3);
            assert_eq!(world.left_ms(NAME), TTL_MS, "renewed when a third has passed");
        }
        world.pass(TTL_MS / 3 - 1);
        assert_eq!(world.left_ms(NAME), TTL_MS - TTL_MS / 3 + 1, "and not before");
        assert_eq!(ada.lease(NAME).unwrap().generation, generation);
        ada.close(open).unwrap();
        let left_ms = world.left_ms(NAME);
        world.pass(left_ms - 1);
        assert!(world.is_closed_to_bob(NAME));
        world.pass(1);
        assert!(!world.is_closed_to_bob(NAME));
        assert_eq!(ada.tree()[NAME], b"unsaved");
    }
}

/// A lease that could not be renewed before its time was over is lost, and not renewed after that: whatever is called
/// next is told, the bytes become a recovery copy, and others get it.
#[test]
fn a_lease_that_is_not_renewed_in_time_is_lost() {
    type Next = fn(&World, Open) -> bool;
    let next: [(&str, Next); 5] = [
        ("write", |world, open| is_lost(world.desks[0].write(open, 7, b" more"))),
        ("fsync", |world, open| is_lost(world.desks[0].fsync(open))),
        ("tick", |world, open| {
            world.desks[0].tick();
            is_lost(world.desks[0].write(open, 7, b" more"))
        }),
        ("renew", |world, open| {
            world.desks[0].renew();
            assert!(world.left_ms(NAME) <= 0, "it was renewed after its end");
            is_lost(world.desks[0].write(open, 7, b" more"))
        }),
        ("flush", |_, _| true),
    ];
    for (what, next) in next {
        let world = World::governed("renew = 'open'");
        let ada = &world.desks[0];
        let open = ada.begin(NAME, b"unsaved").unwrap();
        // Neither thread has come to it, as when the machine slept.
        world.clock.advance_ms(TTL_MS);
        assert!(next(&world, open), "{what}");
        assert!(is_lost(ada.close(open)), "{what}: close");
        assert!(ada.recovered().iter().any(|bytes| bytes.starts_with(b"unsaved")), "{what}");
        assert!(has_problem(&world, 0, "lease-lost"), "{what}");
        world.pass(TTL_MS);
        assert!(world.desks[0].lease(NAME).is_none_or(|lease| !lease.is_live(world.clock.now())), "{what}");
        world.desks[1].save(NAME, b"bob's").unwrap();
        assert_eq!(ada.tree()[NAME], b"a", "{what}");
    }
}

/// A clock after whose next look some time passes, as if whoever looked was held up then.
#[derive(Debug, Default)]
struct HoldUp {
    clock: Arc<ManualClock>,
    after_next_ms: AtomicI64,
}

impl Clock for HoldUp {
    fn now(&self) -> Instant {
        let now = self.clock.now();
        self.clock.advance_ms(self.after_next_ms.swap(0, Ordering::Relaxed));
        now
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

/// A renewal that hangs until the lease's time is over comes too late, though the catalog has made it: it isn't taken for
/// one, holds nobody back, and the lease is lost.
#[test]
fn a_renewal_that_hangs_comes_too_late() {
    for (hangs_ms, is_late) in [(TTL_MS / 2 - 1, false), (TTL_MS / 2, true)] {
        let hold_up = Arc::new(HoldUp::default());
        let policy = format!("ttl = '{TTL_MS}ms'\nrenew = 'open'");
        let world = World::by_clock(Arc::clone(&hold_up.clock), hold_up.clone(), None, &policy);
        let ada = &world.desks[0];
        let open = ada.begin(NAME, b"unsaved").unwrap();
        world.clock.advance_ms(TTL_MS / 2);
        hold_up.after_next_ms.store(hangs_ms, Ordering::Relaxed);
        ada.renew();
        if is_late {
            assert!(ada.lease(NAME).is_none(), "what came too late is given back");
            assert!(is_lost(ada.write(open, 7, b" more")));
            assert!(is_lost(ada.close(open)));
            world.desks[1].save(NAME, b"bob's").unwrap();
        } else {
            assert_eq!(world.left_ms(NAME), TTL_MS - hangs_ms, "it counts from its beginning");
            ada.write(open, 7, b" more").unwrap();
            ada.close(open).unwrap();
        }
    }
}

/// With `close` a lease goes when the last writer has closed and the grace has passed; the draft stays, and is checked in
/// as long as nobody else holds it and the head has not moved.
#[test]
fn a_closed_file_gives_its_lease_back_where_policy_says_so() {
    let world = World::governed("[[rule]]\npaths = ['a.*', 'd.*']\nrelease = 'close'");
    let ada = &world.desks[0];
    type Change = fn(&Desk);
    let changes: [(&str, Change); 3] = [
        ("saved in place", |desk| desk.save(NAME, b"ada's").unwrap()),
        ("saved by rename", |desk| desk.replace(NAME, b"ada's").unwrap()),
        ("given a mode", |desk| desk.chmod(NAME, 0o600).unwrap()),
    ];
    for (what, change) in changes {
        change(ada);
        world.pass(GRACE_MS - 1);
        assert!(world.is_closed_to_bob(NAME), "{what}: within the grace");
        world.pass(1);
        assert!(ada.lease(NAME).is_none(), "{what}");
        assert!(!world.is_closed_to_bob(NAME), "{what}");
        ada.check_in().unwrap();
        world.desks.iter().for_each(Desk::tick);
    }
    ada.save("d.txt", b"new").unwrap();
    world.pass(GRACE_MS);
    assert!(ada.lease("d.txt").is_none(), "a new name is reserved no longer");
    ada.save("b.txt", b"ada's").unwrap();
    world.pass(GRACE_MS);
    assert!(world.is_closed_to_bob("b.txt"), "no rule is about it");
}

/// While somebody has the file open for writing, or opens it again in time, its lease stays.
#[test]
fn a_file_that_is_opened_again_keeps_its_lease() {
    let world = World::governed("release = 'close'");
    let ada = &world.desks[0];
    ada.save(NAME, b"first").unwrap();
    world.pass(GRACE_MS - 1);
    let open = ada.begin(NAME, b"second").unwrap();
    let other = ada.open_for_write(NAME).unwrap();
    ada.close(other).unwrap();
    world.pass(2 * GRACE_MS);
    assert!(world.is_closed_to_bob(NAME));
    ada.close(open).unwrap();
    world.pass(GRACE_MS);
    assert!(!world.is_closed_to_bob(NAME));
}

/// A draft whose close no mount saw gives its lease back as well: its daemon died, or the policy was another one then.
#[test]
fn what_was_closed_before_gives_its_lease_back() {
    let mut world = World::governed("release = 'close'");
    world.desks[0].save(NAME, b"ada's").unwrap();
    world.crash(0);
    world.pass(GRACE_MS);
    assert!(!world.is_closed_to_bob(NAME), "after a crash");
    let world = World::governed("");
    world.desks[0].save(NAME, b"ada's").unwrap();
    let open = world.desks[0].begin("b.txt", b"ada's").unwrap();
    world.pass(GRACE_MS);
    assert!(world.is_closed_to_bob(NAME));
    world.set_policy("release = 'close'");
    world.pass(GRACE_MS);
    assert!(!world.is_closed_to_bob(NAME), "under another policy");
    assert!(world.is_closed_to_bob("b.txt"), "it is still open");
    world.desks[0].close(open).unwrap();
}

/// A check-in of a draft whose lease was given back is refused while somebody else holds it, and after he checked in.
#[test]
fn a_draft_without_its_lease_is_checked_in_only_if_nobody_was_faster() {
    let world = World::governed("release = 'close'");
    let (ada, bob) = (&world.desks[0], &world.desks[1]);
    ada.save(NAME, b"ada's").unwrap();
    world.pass(GRACE_MS);
    let open = bob.begin(NAME, b"bob's").unwrap();
    assert!(matches!(ada.check_in(), Err(EngineError::Held { .. })));
    bob.close(open).unwrap();
    bob.check_in().unwrap();
    ada.tick();
    assert!(matches!(ada.check_in(), Err(EngineError::Stale { .. })));
    assert!(ada.begin(NAME, b"more").is_err());
    assert_eq!(ada.tree()[NAME], b"ada's", "nothing is lost");
}

/// With `none` nobody takes or asks for a lease; the version that a draft was made on guards it all the same.
#[test]
fn where_no_lease_is_needed_the_version_guards() {
    let world = World::governed("[[rule]]\npaths = ['a.*', 'new.*']\nlease = 'none'");
    let (ada, bob) = (&world.desks[0], &world.desks[1]);
    let open = ada.begin(NAME, b"ada's").unwrap();
    bob.replace(NAME, b"bob's").unwrap();
    ada.close(open).unwrap();
    ada.save("new.txt", b"ada's").unwrap();
    bob.save("new.txt", b"bob's").unwrap();
    for name in [NAME, "new.txt"] {
        assert!(ada.lease(name).is_none(), "{name}");
    }
    ada.check_in().unwrap();
    bob.tick();
    assert!(matches!(bob.check_in(), Err(EngineError::Stale { .. })));
    assert!(matches!(bob.begin(NAME, b"again"), Err(VfsError::Stale { .. })), "a stale save is refused");
    assert_eq!([&bob.tree()[NAME], &bob.tree()["new.txt"]], [b"bob's", b"bob's"], "nothing is lost");
    let refused = bob.ops().checkout(&[ArtifactPath::parse(NAME).unwrap()]).unwrap_err();
    assert!(refused.to_string().starts_with("a.txt: config.toml says lease = \"none\""), "{refused}");
}

/// With `warn` a write to what somebody else holds goes on; both are told, once, and the first to check in wins.
#[test]
fn a_conflict_may_be_told_instead_of_refused() {
    let world = World::governed("[[rule]]\npaths = ['a.*']\non_conflict = 'warn'");
    let (ada, bob) = (&world.desks[0], &world.desks[1]);
    ada.save(NAME, b"ada's").unwrap();
    bob.save(NAME, b"bob's").unwrap();
    bob.replace(NAME, b"bob's second").unwrap();
    let open = bob.begin(NAME, b"bob's third").unwrap();
    world.clock.advance_ms(TTL_MS / 2);
    bob.write(open, 11, b"!").unwrap();
    bob.close(open).unwrap();
    assert_eq!(ada.lease(NAME).unwrap().holder.as_str(), "ada@desk", "its holder keeps it");
    for desk in &world.desks {
        let told: Vec<_> =
            desk.problems().into_iter().filter(|line| line.starts_with("lease-conflict")).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("a.txt: bob@desk writes to what ada@desk holds"), "{told:?}");
    }
    assert_eq!(ada.count_events("lease-conflict"), 2, "once each, however often he writes");
    bob.check_in().unwrap();
    ada.tick();
    assert!(matches!(ada.check_in(), Err(EngineError::Stale { .. })));
    assert_eq!(ada.tree()[NAME], b"ada's", "nothing is lost");
    assert!(!has_problem(&world, 1, "lease-conflict"), "his check-in settles it");
    ada.save("b.txt", b"ada's").unwrap();
    assert!(world.is_closed_to_bob("b.txt"), "no rule is about it");
}

/// With `take` unsaved bytes keep an ended lease from nobody; elsewhere they do.
#[test]
fn unsaved_bytes_keep_others_out_by_path() {
    let world = World::governed("[[rule]]\npaths = ['b.*']\non_unresolved_writer = 'take'");
    let open = ["a.txt", "b.txt"].map(|name| world.desks[0].begin(name, b"unsaved").unwrap());
    world.pass(1_000);
    world.clock.advance_ms(TTL_MS);
    assert!(world.is_closed_to_bob("a.txt"));
    assert!(!world.is_closed_to_bob("b.txt"));
    open.into_iter().for_each(|open| drop(world.desks[0].close(open)));
}

/// What governs a document is its path in the head tree: nobody gets out of a rule by moving it in his own checkout.
#[test]
fn a_rename_changes_the_rule_when_it_is_checked_in() {
    let world = World::governed("[[rule]]\npaths = ['c.*']\nlease = 'none'");
    let ada = &world.desks[0];
    ada.rename(NAME, "c.txt", RenameMode::Replace).unwrap();
    world.pass(TTL_MS);
    ada.save("c.txt", b"ada's").unwrap();
    assert!(world.is_closed_to_bob(NAME), "the save has taken the lease again");
    ada.check_in().unwrap();
    world.desks[1].tick();
    ada.save("c.txt", b"ada's second").unwrap();
    assert!(ada.lease("c.txt").is_none());
    assert!(!world.is_closed_to_bob("c.txt"));
}

/// Another policy holds at once, also for what is open: where leases are needed from now on, the next write takes one or
/// is refused, and where they aren't any more it isn't.
#[test]
fn another_policy_holds_at_once() {
    let world = World::governed("lease = 'none'");
    let [ada, bob] = [0, 1].map(|who| world.desks[who].begin(NAME, b"bytes").unwrap());
    world.set_policy("ttl = '1m'");
    world.desks[0].write(ada, 5, b" more").unwrap();
    assert_eq!(world.left_ms(NAME), 60_000);
    assert!(is_lost(world.desks[1].write(bob, 5, b" more")));
    assert!(world.desks[1].close(bob).is_err());
    assert!(world.desks[1].recovered().contains(&b"bytes more".to_vec()));
    world.set_policy("ttl = '2m'");
    world.desks[0].write(ada, 5, b" more").unwrap();
    assert_eq!(world.left_ms(NAME), 120_000);
    world.set_policy("ttl = '1m'\nrenew = 'open'");
    for _ in 0..6 {
        world.pass(20_000);
    }
    assert!(world.left_ms(NAME) >= 40_000, "what is open already is renewed from now on");
    world.set_policy("lease = 'none'");
    assert!(!world.is_closed_to_bob(NAME));
    world.desks[0].close(ada).unwrap();
}

/// A policy that can't be used changes nothing, and is told until it is mended.
#[test]
fn a_broken_policy_leaves_what_held_before() {
    let world = World::governed("");
    world.set_policy("lease = 'none'\nttk = '1h'");
    world.desks[0].save(NAME, b"ada's").unwrap();
    assert_eq!(world.left_ms(NAME), TTL_MS, "what held before still does");
    assert!(world.is_closed_to_bob(NAME));
    let told = world.desks[0].problems();
    assert!(told.iter().any(|line| line.contains("config.toml:2: \"ttk\" is not understood")), "{told:?}");
    world.set_policy("lease = 'none'");
    assert_eq!(world.desks[0].problems(), [""; 0]);
    assert!(!world.is_closed_to_bob(NAME));
}
