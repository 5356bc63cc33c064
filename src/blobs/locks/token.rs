use super::env::Env;
use crate::sys::{self, ProcessKey};

/// What our tokens begin with.
const PREFIX: &str = "lh";
/// How much of a token the name of a claim has.
const CLAIM_CHARACTERS: usize = 96;

/// Makes a token that no one else makes: `lh-<boot>-<pid>-<start>-<random>-<ms>`, at most 96 of `[0-9A-Za-z-]`.
///
/// Boot, process number and start time (proc(5), `stat`, field 22) tell later whether the holder can still live.
pub(super) fn new(env: &Env) -> String {
    let (now, ProcessKey { pid, start_ticks }) = (env.now(), env.process);
    let (boot, random) = (short_boot(now.boot), env.ids.token());
    format!("{PREFIX}-{boot}-{pid}-{start_ticks}-{random}-{}", now.wall.0.div_euclid(1_000_000))
}

/// Who signed with one of our tokens.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signer {
    boot: String,
    process: ProcessKey,
}

impl Signer {
    /// The signer of a token; none, if the token isn't one of ours.
    pub(super) fn of(token: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(token).ok()?.split('-');
        if parts.next()? != PREFIX {
            return None;
        }
        let boot = parts.next().filter(|boot| boot.len() == 8)?.to_owned();
        let process =
            ProcessKey { pid: parts.next()?.parse().ok()?, start_ticks: parts.next()?.parse().ok()? };
        Some(Self { boot, process })
    }

    /// Whether the signer is another process that runs.
    ///
    /// It isn't asked alone: a process of another container has another number here.
    pub(super) fn lives_elsewhere(&self, env: &Env) -> bool {
        self.boot == short_boot(env.now().boot) && self.process != env.process && sys::is_alive(self.process)
    }
}

fn short_boot(boot: i64) -> String {
    format!("{:08x}", boot & 0xffff_ffff)
}

/// A token as a part of a name: what isn't `[0-9A-Za-z-]` becomes `_`. A peer counts UTF-16 units, so this does.
pub(super) fn in_name(token: &[u8]) -> String {
    let text = String::from_utf8_lossy(token);
    let safe = |unit: u16| match u8::try_from(unit) {
        Ok(byte) if byte.is_ascii_alphanumeric() || byte == b'-' => char::from(byte),
        _ => '_',
    };
    text.encode_utf16().take(CLAIM_CHARACTERS).map(safe).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::ManualClock;
    use crate::ids::{CountingIds, SystemIds};

    fn env() -> Env {
        Env::new(Arc::new(ManualClock::new()), Arc::new(SystemIds)).unwrap()
    }

    /// Tokens are unique, tell who made them, and are safe in the name of a claim as they are.
    #[test]
    fn our_tokens_tell_their_process_and_need_no_cleaning() {
        let longest = ProcessKey { pid: u32::MAX, start_ticks: u64::MAX };
        for process in [env().process, longest] {
            let env = Env { process, ..env() };
            let token = new(&env);
            assert_eq!(Signer::of(token.as_bytes()), Some(Signer { boot: "00000001".into(), process }));
            assert!(in_name(token.as_bytes()) == token && token.len() <= CLAIM_CHARACTERS, "{token}");
            assert_ne!(token, new(&env));
        }
    }

    /// Only a process that was seen to run counts as living; our own holds no lock that we contend for.
    #[test]
    fn a_signer_lives_if_it_runs_in_this_boot() {
        let clock = Arc::new(ManualClock::new());
        let env = Env::new(clock.clone(), Arc::new(CountingIds::default())).unwrap();
        let parent = sys::process(std::os::unix::process::parent_id()).unwrap();
        let signed_by = |process| Signer::of(new(&Env { process, ..env.clone() }).as_bytes()).unwrap();
        let gone = ProcessKey { start_ticks: parent.start_ticks + 1, ..parent };
        let lives: Vec<bool> =
            [parent, gone, env.process].map(|process| signed_by(process).lives_elsewhere(&env)).into();
        assert_eq!(lives, [true, false, false]);
        let before = signed_by(parent);
        clock.reboot();
        assert!(!before.lives_elsewhere(&env));
    }

    #[test]
    fn foreign_tokens_have_no_signer_and_are_cleaned_for_names() {
        let foreign: [(&str, &str); 6] = [
            ("rust:token/2 é", "rust_token_2__"),
            ("", ""),
            ("3xk2-9f-1796000000000", "3xk2-9f-1796000000000"),
            ("lh-1-2", "lh-1-2"),
            ("lh\n../x", "lh____x"),
            ("😀", "__"),
        ];
        for (token, name) in foreign {
            assert_eq!(Signer::of(token.as_bytes()), None, "{token}");
            assert_eq!(in_name(token.as_bytes()), name);
        }
        assert_eq!(in_name(&[b'x'; 200]), "x".repeat(96));
    }
}
