//! A reference model: random steps of two holders, with time that passes and daemons that die, on the vfs and on a
//! model of it. After every step both mounts show what the model shows.

mod desk;
mod policy;
mod reference;
mod time;

use std::sync::Arc;

use leasehold::clock::{Clock, ManualClock};
use leasehold::engine::{Environment, ImportRequest, Workspace};
use leasehold::ids::CountingIds;
use leasehold::model::ArtifactPath;
use leasehold::vfs::RenameMode;
use proptest::prelude::*;
use tempfile::TempDir;

use desk::{Desk, Open};
use reference::{NAMES, Reference, TTL_MS, Verdict};

const HOLDERS: [&str; 2] = ["ada@desk", "bob@desk"];

const CASES: u32 = 24;

/// What change 1 has.
const HEAD: [(&str, &[u8]); 2] = [("a.txt", b"a"), ("b.txt", b"b")];

/// One step; numbers stand for what is there, modulo how much that is.
#[derive(Debug, Clone, Copy)]
enum Step {
    Save { name: usize },
    Replace { name: usize },
    Begin { name: usize },
    Write,
    Close,
    Rename { from: usize, to: usize },
    Exchange { a: usize, b: usize },
    Unlink { name: usize },
    CheckIn,
    Revert,
    Advance { ms: i64 },
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..60_usize;
    prop_oneof![
        4 => name().prop_map(|name| Step::Save { name }),
        3 => name().prop_map(|name| Step::Replace { name }),
        3 => name().prop_map(|name| Step::Begin { name }),
        4 => Just(Step::Write),
        2 => Just(Step::Close),
        4 => (name(), name()).prop_map(|(from, to)| Step::Rename { from, to }),
        2 => (name(), name()).prop_map(|(a, b)| Step::Exchange { a, b }),
        2 => name().prop_map(|name| Step::Unlink { name }),
        3 => Just(Step::CheckIn),
        1 => Just(Step::Revert),
        2 => (1..40_000_i64).prop_map(|ms| Step::Advance { ms }),
        2 => Just(Step::Crash),
    ]
}

/// The system under test beside its model.
struct World {
    dir: TempDir,
    env: Environment,
    clock: Arc<ManualClock>,
    desks: Vec<Desk>,
    open: [Option<Open>; 2],
    model: Reference,
    saves: usize,
}

impl World {
    fn new() -> Self {
        Self::with(Some(TTL_MS), "")
    }

    /// As [`new`](Self::new), with a policy, and with the time for leases that the mounts ask for.
    fn with(ttl_ms: Option<i64>, policy: &str) -> Self {
        let clock = Arc::new(ManualClock::new());
        Self::by_clock(Arc::clone(&clock), clock, ttl_ms, policy)
    }

    /// As [`with`](Self::with), with another clock for the mounts than the one that the test moves.
    fn by_clock(clock: Arc<ManualClock>, shown: Arc<dyn Clock>, ttl_ms: Option<i64>, policy: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let env = Environment { clock: shown, ids: Arc::new(CountingIds::default()) };
        import_head(&dir, &env);
        std::fs::write(dir.path().join(".leasehold/config.toml"), policy).unwrap();
        let desks = HOLDERS.iter().map(|holder| Desk::mount(dir.path(), &env, holder, ttl_ms)).collect();
        Self { dir, env, clock, desks, open: [None; 2], model: Reference::new(&HEAD), saves: 0 }
    }

    /// Bytes that no other save has.
    fn fresh_bytes(&mut self) -> Vec<u8> {
        self.saves += 1;
        format!("<{}>", self.saves).repeat(1 + self.saves % 5).into_bytes()
    }

    fn run(&mut self, who: usize, step: Step) {
        self.model.set_now(self.clock.now().boot_ms);
        match step {
            Step::Save { name } => self.save(who, NAMES[name % NAMES.len()]),
            Step::Replace { name } => self.replace(who, NAMES[name % NAMES.len()]),
            Step::Begin { name } => self.begin(who, NAMES[name % NAMES.len()]),
            Step::Write => self.write(who),
            Step::Close => self.close(who),
            Step::Rename { from, to } => self.rename(who, from, NAMES[to % NAMES.len()]),
            Step::Exchange { a, b } => self.exchange(who, a, b),
            Step::Unlink { name } => self.unlink(who, name),
            Step::CheckIn => self.check_in(who),
            Step::Revert => self.revert(who),
            Step::Advance { ms } => self.clock.advance_ms(ms),
            Step::Crash => self.crash(who),
        }
        self.desks.iter().for_each(Desk::tick);
    }

    fn assert_same(&self) {
        for (who, holder) in HOLDERS.iter().enumerate() {
            assert_eq!(text(&self.desks[who].tree()), text(&self.model.tree(who)), "what {holder} sees");
        }
    }

    fn save(&mut self, who: usize, name: &'static str) {
        let bytes = self.fresh_bytes();
        let result = self.desks[who].save(name, &bytes);
        if judged(self.model.verdict(who, name), result) {
            self.model.save(who, name, &bytes);
        }
    }

    fn replace(&mut self, who: usize, name: &'static str) {
        let bytes = self.fresh_bytes();
        let result = self.desks[who].replace(name, &bytes);
        if judged(self.model.verdict(who, name), result) {
            self.model.replace(who, name, &bytes);
        }
    }

    fn begin(&mut self, who: usize, name: &'static str) {
        self.close(who);
        let bytes = self.fresh_bytes();
        match self.desks[who].begin(name, &bytes) {
            Ok(open) => {
                judged(self.model.verdict(who, name), Ok::<_, ()>(()));
                self.open[who] = Some(open);
                self.model.begin(who, name, &bytes);
            }
            Err(error) => drop(judged(self.model.verdict(who, name), Err::<(), _>(error))),
        }
    }

    fn write(&mut self, who: usize) {
        let Some(open) = self.open[who] else { return };
        let (bytes, size) = (self.fresh_bytes(), self.model.open_size(who));
        let verdict = self.verdict_of_open(who);
        if judged(verdict, self.desks[who].write(open, size, &bytes)) {
            self.model.write(who, &bytes);
        } else {
            self.lose(who);
        }
    }

    /// What is written to a file without a name is nobody's business.
    fn verdict_of_open(&self, who: usize) -> Verdict {
        self.model.open_name(who).map_or(Verdict::May, |name| self.model.verdict(who, name))
    }

    fn close(&mut self, who: usize) {
        let Some(open) = self.open[who].take() else { return };
        // Bytes that are saved already need no lease.
        let verdict = match self.verdict_of_open(who) {
            Verdict::MustNot => Verdict::May,
            other => other,
        };
        if judged(verdict, self.desks[who].close(open)) {
            self.model.close(who);
        } else {
            self.assert_recovered_after_loss(who);
        }
    }

    fn lose(&mut self, who: usize) {
        if let Some(open) = self.open[who].take() {
            let _ = self.desks[who].close(open);
        }
        self.assert_recovered_after_loss(who);
    }

    /// What was acknowledged and can't be a draft any more is a recovery copy, perhaps with what came after it.
    fn assert_recovered_after_loss(&mut self, who: usize) {
        if let Some(unsaved) = self.model.lose(who) {
            let recovered = self.desks[who].recovered();
            assert!(recovered.iter().any(|copy| copy.starts_with(&unsaved)), "lost: {}", string(&unsaved));
        }
    }

    fn rename(&mut self, who: usize, from: usize, to: &'static str) {
        let Some(from) = pick(&self.model.present(who), from) else { return };
        // The kernel itself answers a rename onto the same name.
        if from == to || self.is_unknowable(who, from, to) {
            return;
        }
        let verdict = Reference::both(self.model.verdict(who, from), self.model.verdict(who, to));
        if judged(verdict, self.desks[who].rename(from, to, RenameMode::Replace)) {
            self.model.rename(who, from, to);
        }
    }

    fn exchange(&mut self, who: usize, a: usize, b: usize) {
        let present = self.model.present(who);
        let (Some(a), Some(b)) = (pick(&present, a), pick(&present, b)) else { return };
        if a == b || self.is_unknowable(who, a, b) {
            return;
        }
        let verdict = Reference::both(self.model.verdict(who, a), self.model.verdict(who, b));
        if judged(verdict, self.desks[who].rename(a, b, RenameMode::Exchange)) {
            self.model.exchange(who, a, b);
        }
    }

    /// A rename under somebody else's draft whose lease has ended moves that draft's identity, which the model lacks.
    fn is_unknowable(&self, who: usize, a: &str, b: &str) -> bool {
        let may = |name| self.model.verdict(who, name) == Verdict::May;
        self.model.is_contested(who, a) && may(a) || self.model.is_contested(who, b) && may(b)
    }

    fn unlink(&mut self, who: usize, name: usize) {
        let Some(name) = pick(&self.model.present(who), name) else { return };
        if judged(self.model.verdict(who, name), self.desks[who].unlink(name)) {
            self.model.unlink(who, name);
        }
    }

    fn check_in(&mut self, who: usize) {
        self.close(who);
        let contested = NAMES.iter().any(|name| self.model.is_contested(who, name));
        let verdict = self.model.verdict_of_check_in(who);
        if !judged(verdict, self.desks[who].check_in()) {
            return;
        }
        self.model.check_in(who);
        if contested {
            let other = 1 - who;
            self.desks[other].tick();
            self.close(other);
            self.model.adopt(other, &self.desks[other].tree());
        }
    }

    fn revert(&mut self, who: usize) {
        self.close(who);
        self.desks[who].revert().unwrap();
        self.model.revert(who);
    }

    fn crash(&mut self, who: usize) {
        self.open[who] = None;
        let desk = self.desks.remove(who);
        self.desks.insert(who, desk.crash_and_mount(self.dir.path(), &self.env));
        if let Some(unsaved) = self.model.crash(who) {
            let recovered = self.desks[who].recovered();
            assert!(recovered.contains(&unsaved), "lost in a crash: {}", string(&unsaved));
        }
    }
}

/// Whether a step succeeded, after a look whether that was its only way.
fn judged<E: std::fmt::Debug>(verdict: Verdict, result: Result<(), E>) -> bool {
    match (verdict, &result) {
        (Verdict::Must, Err(error)) => panic!("must succeed: {error:?}"),
        (Verdict::MustNot, Ok(())) => panic!("must be refused"),
        _ => result.is_ok(),
    }
}

fn pick(names: &[&'static str], at: usize) -> Option<&'static str> {
    (!names.is_empty()).then(|| names[at % names.len()])
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn text(tree: &std::collections::BTreeMap<String, Vec<u8>>) -> Vec<(&str, String)> {
    tree.iter().map(|(name, bytes)| (name.as_str(), string(bytes))).collect()
}

fn import_head(dir: &TempDir, env: &Environment) {
    let from = tempfile::tempdir().unwrap();
    for (name, bytes) in HEAD {
        std::fs::write(from.path().join(name), bytes).unwrap();
    }
    let workspace = Workspace::init(dir.path(), env).unwrap();
    let request = ImportRequest {
        sources: vec![from.path().to_owned()],
        into: ArtifactPath::root(),
        message: "the head".into(),
        author: HOLDERS[0].parse().unwrap(),
        contents_only: true,
    };
    workspace.import(&request, &|_| ()).unwrap();
}

fn run_all(steps: &[(usize, Step)]) {
    let mut world = World::new();
    world.assert_same();
    for (who, step) in steps {
        world.run(*who, *step);
        world.assert_same();
    }
}

/// A few cases, unless `PROPTEST_CASES` says more.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { CASES };
    ProptestConfig { cases, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    /// Whatever two holders do to one tree, each sees what the model says, and no acknowledged byte is lost.
    #[test]
    fn two_holders_see_what_the_model_says(steps in prop::collection::vec((0..2_usize, step()), 1..40)) {
        run_all(&steps);
    }
}

/// A check-in just after the last writer closed releases the lease: the next holder may write.
#[test]
fn a_lease_of_a_writer_who_just_closed_is_released() {
    use Step::{Begin, CheckIn, Rename, Save};
    run_all(&[(0, Begin { name: 0 }), (0, Save { name: 0 }), (0, CheckIn), (1, Rename { from: 0, to: 3 })]);
}

/// The new name of a moved document is its mover's, though its bytes are the version's.
#[test]
fn a_moved_documents_new_name_is_reserved() {
    use Step::{Rename, Save};
    run_all(&[(0, Rename { from: 0, to: 3 }), (1, Save { name: 3 })]);
}

/// A version that was moved to a backup and that a revert brought back can be saved again under both names.
#[test]
fn a_version_under_two_names_can_be_saved() {
    use Step::{Begin, CheckIn, Rename, Revert, Save};
    let two_names = [
        (0, Save { name: 0 }),
        (0, CheckIn),
        (0, Rename { from: 0, to: 4 }),
        (0, Save { name: 0 }),
        (0, Revert),
    ];
    let saves = [(0, Begin { name: 4 }), (0, Save { name: 0 }), (0, Save { name: 0 })];
    run_all(&[&two_names[..], &saves].concat());
}

/// Unsaved bytes stay with their file when another one takes the name that it had, and with it its identity.
#[test]
fn unsaved_bytes_stay_with_a_moved_file() {
    use Step::{Begin, Close, Rename, Write};
    let moved = [(0, Rename { from: 1, to: 2 }), (0, Begin { name: 2 }), (0, Rename { from: 0, to: 1 })];
    run_all(&[&moved[..], &[(0, Write), (0, Close)]].concat());
}

/// A rename that is refused makes no save of what is half written: the last save stays the draft.
#[test]
fn a_refused_rename_saves_nothing() {
    use Step::{Begin, Crash, Exchange, Rename, Save};
    let half_written = [(1, Save { name: 1 }), (0, Begin { name: 0 })];
    for refused in [Exchange { a: 1, b: 0 }, Exchange { a: 0, b: 1 }, Rename { from: 0, to: 1 }] {
        run_all(&[&half_written[..], &[(0, refused), (0, Crash)]].concat());
    }
}

/// Neither does one that is refused since its new name is reserved or held.
#[test]
fn a_rename_to_a_taken_name_saves_nothing() {
    use Step::{Begin, Crash, Exchange, Rename, Replace};
    let reserved = [(1, Replace { name: 3 }), (0, Begin { name: 2 })];
    run_all(&[&reserved[..], &[(0, Rename { from: 2, to: 3 }), (0, Crash)]].concat());
    let held = [(1, Replace { name: 1 }), (0, Begin { name: 2 })];
    run_all(&[&held[..], &[(0, Exchange { a: 2, b: 1 }), (0, Crash)]].concat());
}

/// A check-in after a crash releases the lease of who was writing when the daemon died.
#[test]
fn a_dead_writers_lease_is_released() {
    use Step::{Advance, Begin, CheckIn, Crash, Rename};
    let crash =
        [(1, Rename { from: 0, to: 1 }), (1, Begin { name: 0 }), (0, Advance { ms: 800 }), (1, Crash)];
    run_all(&[&crash[..], &[(1, CheckIn), (0, Rename { from: 0, to: 1 })]].concat());
}
