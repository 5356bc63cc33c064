//! The policy of an open workspace, which follows its file.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::{Config, ConfigError, FileIdentity, Policy};
use crate::model::with_sources;

/// Why `config.toml` is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyLook {
    /// A writer has closed it, or a file was renamed to its name: it is whole.
    Written,
    /// Some time has passed. Somebody may be in the middle of writing it: it is taken when it is the same twice.
    NowAndThen,
}

/// What came of a look at `config.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyChange {
    /// The same holds as before.
    None,
    /// Something else holds from now on.
    Taken,
    /// It can't be used, as the line says: what held before still does.
    Refused(String),
}

/// What holds, and which file says so. Locking: one mutex, for a look or an assignment only.
#[derive(Debug)]
pub(super) struct PolicyFile(Mutex<State>);

#[derive(Debug)]
struct State {
    present: Arc<Policy>,
    /// The file that was last read, well or not.
    read: FileIdentity,
    /// The file at the last look.
    seen: FileIdentity,
    /// Why the file that was last read can't be used.
    fault: Option<String>,
    /// `[remote]` says something else than at the start, where the shared store was opened.
    remote_changed: bool,
}

impl PolicyFile {
    /// Reads the file; fails if it can't be used.
    pub fn open(path: &Path) -> Result<Self, ConfigError> {
        let identity = FileIdentity::of(path);
        Ok(Self::new(Config::load(path)?, identity, None))
    }

    /// As [`open`](Self::open); where the file can't be used the defaults hold.
    pub fn open_to_look(path: &Path) -> Self {
        let identity = FileIdentity::of(path);
        match Config::load(path) {
            Ok(policy) => Self::new(policy, identity, None),
            Err(error) => Self::new(Policy::default(), identity, Some(with_sources(&error))),
        }
    }

    fn new(policy: Policy, identity: FileIdentity, fault: Option<String>) -> Self {
        let present = Arc::new(policy);
        Self(Mutex::new(State { present, read: identity, seen: identity, fault, remote_changed: false }))
    }

    /// What holds.
    pub fn present(&self) -> Arc<Policy> {
        Arc::clone(&self.0.lock().present)
    }

    /// Takes over what the file says, if it is another one or could not be used before; what can't be used leaves what
    /// held before. `[remote]` stays what it was.
    pub fn look(&self, path: &Path, look: PolicyLook) -> PolicyChange {
        // Before it is read: what is written later is found at the next look.
        let identity = FileIdentity::of(path);
        if look == PolicyLook::NowAndThen && !self.is_due(identity) {
            return PolicyChange::None;
        }
        match Config::load(path) {
            Ok(policy) => self.take(policy, identity),
            Err(error) => self.refuse(with_sources(&error), identity),
        }
    }

    fn is_due(&self, identity: FileIdentity) -> bool {
        let mut state = self.0.lock();
        let seen = std::mem::replace(&mut state.seen, identity);
        // What the file names may be mended without touching it: a token, the mode of a directory above.
        (identity != state.read || state.fault.is_some()) && identity == seen
    }

    fn take(&self, loaded: Policy, identity: FileIdentity) -> PolicyChange {
        let mut state = self.0.lock();
        let remote_changed = loaded.remote != state.present.remote;
        let policy = Policy { remote: state.present.remote.clone(), ..loaded };
        let same =
            *state.present == policy && state.remote_changed == remote_changed && state.fault.is_none();
        state.read = identity;
        state.fault = None;
        state.remote_changed = remote_changed;
        if same {
            return PolicyChange::None;
        }
        state.present = Arc::new(policy);
        PolicyChange::Taken
    }

    fn refuse(&self, fault: String, identity: FileIdentity) -> PolicyChange {
        let mut state = self.0.lock();
        let known = state.fault.as_ref() == Some(&fault);
        state.read = identity;
        state.fault = Some(fault.clone());
        if known { PolicyChange::None } else { PolicyChange::Refused(fault) }
    }

    /// Notes that what the file says can't be used after all.
    pub fn note_fault(&self, fault: String) {
        self.0.lock().fault = Some(fault);
    }

    /// Why the file can't be used, if it can't.
    pub fn fault(&self) -> Option<String> {
        self.0.lock().fault.clone()
    }

    /// What keeps the file from being what holds, a line each.
    pub fn problems(&self, path: &Path) -> Vec<String> {
        let state = self.0.lock();
        let fault = state
            .fault
            .as_ref()
            .map(|fault| format!("policy: {fault}; until it is mended what held before does"));
        let changed = format!(
            "policy: {}: [remote] was changed; unmount, and mount again, to use another shared store",
            path.display()
        );
        fault.into_iter().chain(state.remote_changed.then_some(changed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Watched {
        file: PolicyFile,
        path: std::path::PathBuf,
        _dir: tempfile::TempDir,
    }

    fn watched() -> Watched {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, "ttl = '1h'").unwrap();
        Watched { file: PolicyFile::open(&path).unwrap(), path, _dir: dir }
    }

    impl Watched {
        fn look(&self, look: PolicyLook) -> PolicyChange {
            self.file.look(&self.path, look)
        }

        fn ttl_ms(&self) -> i64 {
            self.file.present().leasing.ttl_ms
        }
    }

    /// Somebody may be in the middle of writing: what is seen now and then has to be the same twice, and a file that is
    /// gone for a moment weakens nothing.
    #[test]
    fn what_may_be_half_written_is_taken_when_it_is_the_same_twice() {
        let watched = watched();
        for step in ["", "ttl = '2", "ttl = '2h'\n"] {
            fs::write(&watched.path, step).unwrap();
            assert_eq!(watched.look(PolicyLook::NowAndThen), PolicyChange::None, "{step}");
        }
        assert_eq!(watched.ttl_ms(), 3_600_000);
        assert_eq!(watched.look(PolicyLook::NowAndThen), PolicyChange::Taken);
        assert_eq!(watched.ttl_ms(), 7_200_000);
        fs::remove_file(&watched.path).unwrap();
        assert_eq!(watched.look(PolicyLook::NowAndThen), PolicyChange::None);
        fs::write(&watched.path, "ttl = '3h'").unwrap();
        assert_eq!(watched.look(PolicyLook::NowAndThen), PolicyChange::None);
        assert_eq!(watched.ttl_ms(), 7_200_000);
    }

    /// What a writer has closed is taken at once; what says the same as before is no change.
    #[test]
    fn what_is_whole_is_taken_at_once() {
        let watched = watched();
        fs::write(&watched.path, "ttl = '2h'").unwrap();
        assert_eq!(watched.look(PolicyLook::Written), PolicyChange::Taken);
        fs::write(&watched.path, "ttl = '120m'").unwrap();
        assert_eq!(watched.look(PolicyLook::Written), PolicyChange::None);
        assert_eq!(watched.ttl_ms(), 7_200_000);
    }

    /// A fault is told once, and looked at again though the file stays: what it names may be mended elsewhere.
    #[test]
    fn a_fault_is_told_until_it_is_mended() {
        let watched = watched();
        let text = "ttl = '2h'\n[remote]\nurl = 'https://a'\ntoken_file = 'token'\n";
        fs::write(&watched.path, text).unwrap();
        let PolicyChange::Refused(line) = watched.look(PolicyLook::Written) else { panic!("it is taken") };
        assert!(line.contains("config.toml:4: "), "{line}");
        assert_eq!(watched.look(PolicyLook::Written), PolicyChange::None, "it is known");
        assert!(watched.file.problems(&watched.path)[0].contains(&line));
        let token = watched.path.with_file_name("token");
        fs::write(&token, "word").unwrap();
        fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(watched.look(PolicyLook::NowAndThen), PolicyChange::None, "the first look");
        assert_eq!(watched.look(PolicyLook::NowAndThen), PolicyChange::Taken);
        let problems = watched.file.problems(&watched.path);
        assert!(problems.len() == 1 && problems[0].contains("[remote] was changed"), "{problems:?}");
        assert_eq!((watched.ttl_ms(), watched.file.present().remote.clone()), (7_200_000, None));
    }
}
