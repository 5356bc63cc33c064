//! A second process of a test: this very program, which runs one ignored test and does what its standard input says.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::kernel;

/// Before each answer, since the test runner prints too.
const MARK: &str = "peer: ";

/// A process that does what it is told, one line at a time, and is killed at the end.
pub struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Runs the ignored test `test` in a process with some variables set.
    pub fn start(test: &str, variables: &[(&str, &OsStr)]) -> Self {
        Self::spawn(Command::new(std::env::current_exe().unwrap()), test, variables)
    }

    /// The same as another user, who must be able to run `program`, a copy of this one.
    pub fn start_as(uid: u32, program: &Path, test: &str, variables: &[(&str, &OsStr)]) -> Self {
        let mut command = Command::new(program);
        command.uid(uid).gid(uid).current_dir("/");
        Self::spawn(command, test, variables)
    }

    fn spawn(mut command: Command, test: &str, variables: &[(&str, &OsStr)]) -> Self {
        let mut child = command
            .args([test, "--exact", "--ignored", "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the peer ended");
            if let Some(at) = line.find(MARK) {
                return line[at + MARK.len()..].trim_end().to_owned();
            }
        }
    }

    /// Says a line and hears the answer to it.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    pub fn signal(&self, signal: i32) {
        kernel::kill(i32::try_from(self.child.id()).unwrap(), signal);
    }

    /// Kills it, and waits until it is dead.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A peer's answer.
pub fn answer(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{MARK}{line}").unwrap();
    out.flush().unwrap();
}
