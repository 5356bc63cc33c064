use std::io::Write;

use serde::Serialize;

use super::super::error::{Result, one_line};
use super::super::forms::{Form, PathForm};
use super::Asked;
use crate::cli::LeaseEventsArgs;
use crate::engine::NamedEvent;

/// How many events are read at a time.
const BATCH: usize = 1_000;

/// The longest pause before new events are looked for, in milliseconds: some commits wake nobody.
const PAUSE_MS: i64 = 100;

/// Prints events, a line each, in the order of their numbers.
pub(super) fn run(asked: &Asked<'_>, args: &LeaseEventsArgs, out: &mut dyn Write) -> Result<()> {
    let workspace = asked.context.workspace(&asked.args.workspace)?;
    let watch = args.follow.then(|| workspace.watch());
    let mut after = match args.after {
        None if args.follow => workspace.newest_event()?,
        None => 0,
        Some(after) => {
            workspace.check_events_after(after)?;
            after
        }
    };
    loop {
        let events = workspace.events(after, BATCH)?;
        for event in events.iter().filter(|event| !event.hidden) {
            print(event, asked.args.format.json, out)?;
        }
        out.flush()?;
        match (events.last(), &watch) {
            (Some(last), _) => after = last.event.seq,
            (None, Some(watch)) => watch.wait(PAUSE_MS),
            (None, None) => return Ok(()),
        }
    }
}

fn print(event: &NamedEvent, json: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        serde_json::to_writer(&mut *out, &EventForm::of(event)).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    let NamedEvent { event: told, .. } = event;
    let holder = told.holder.as_ref().map_or("-", |holder| holder.as_str());
    let mut line =
        format!("{}  {}  {}  {}  {}", told.seq, told.at.to_rfc3339(), told.kind, event.object(), holder);
    if let Some(lease) = &told.lease {
        line.push_str(&format!("  generation {} until {}", lease.generation, lease.expires.to_rfc3339()));
    }
    if !told.detail.is_empty() {
        line.push_str(&format!("  {}", told.detail));
    }
    writeln!(out, "{}", one_line(&line))?;
    Ok(())
}

#[derive(Serialize)]
struct EventForm {
    seq: i64,
    at: String,
    kind: String,
    /// The key of the resource that it is about.
    key: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    path: Option<PathForm>,
    holder: Option<String>,
    detail: String,
    #[serde(flatten)]
    lease: Option<EventLeaseForm>,
}

/// The lease after the event, and when that was by the clock that counts.
#[derive(Serialize)]
struct EventLeaseForm {
    generation: i64,
    expires: String,
    expires_boot_ms: i64,
    boot: i64,
    boot_ms: i64,
}

impl EventForm {
    fn of(named: &NamedEvent) -> Self {
        let event = &named.event;
        Self {
            seq: event.seq,
            at: event.at.to_rfc3339(),
            kind: event.kind.clone(),
            key: named.key.as_ref().map(ToString::to_string),
            path: named.path.as_ref().map(PathForm::of),
            holder: event.holder.as_ref().map(ToString::to_string),
            detail: event.detail.clone(),
            lease: event.lease.as_ref().map(|lease| EventLeaseForm {
                generation: lease.generation.0,
                expires: lease.expires.to_rfc3339(),
                expires_boot_ms: lease.expires_boot_ms,
                boot: lease.boot,
                boot_ms: lease.boot_ms,
            }),
        }
    }
}
