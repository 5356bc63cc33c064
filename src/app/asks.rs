use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use crate::commands::error::{chain, one_line};
use crate::engine::{EngineError, NamedEvent, Workspace};
use crate::model::Holder;

/// The program that shows a line on the desktop, where there is one (notify-send(1)).
const NOTIFIER: &str = "notify-send";

/// Tells a holder on his desktop that somebody asked for what he has, or took it. Locking: one mutex, for a look only.
pub(super) struct Asks {
    workspace: Arc<Workspace>,
    holder: Holder,
    position: Mutex<i64>,
}

impl Asks {
    /// Tells what happens from now on.
    pub fn new(workspace: Arc<Workspace>, holder: Holder) -> Result<Self, EngineError> {
        let position = Mutex::new(workspace.newest_event()?);
        Ok(Self { workspace, holder, position })
    }

    /// Tells what happened since the last look.
    pub fn look(&self) {
        let after = *self.position.lock();
        match self.workspace.told(&self.holder, after) {
            Ok((events, next)) => {
                events.iter().for_each(show);
                *self.position.lock() = next;
            }
            Err(error) => tracing::warn!(error = chain(&error), "can't look what was asked for"),
        }
    }
}

/// Shows an event; the log has it in any case. A thread of its own waits for the program, which may wait for a desktop.
fn show(named: &NamedEvent) {
    let (title, text) = texts(named);
    tracing::info!(title, text, "told to the holder");
    let mut command = Command::new(NOTIFIER);
    command.args(["--app-name=Leasehold", "--", &title, &text]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => drop(thread::Builder::new().name("notify".into()).spawn(move || child.wait())),
        Err(error) => tracing::debug!(%error, "nothing shows it on the desktop"),
    }
}

/// A title and a text; the desktop may read the text as markup.
fn texts(named: &NamedEvent) -> (String, String) {
    let title = format!("{} was {}", named.object(), named.event.kind);
    let text = named.event.detail.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    (one_line(&title), one_line(&text))
}
