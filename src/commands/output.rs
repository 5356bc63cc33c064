//! What commands print: aligned lines for people, one JSON value for programs.

use std::io::{self, Read, Write};

use serde::Serialize;

use super::error::{CommandError, Result, one_line};
use crate::engine::Action;
use crate::model::{Instant, Lease};

/// Holds bytes between the store and the output.
const BUFFER_BYTES: usize = 128 * 1024;

/// Standard output, or a buffer in tests.
pub struct Printer<'a> {
    out: &'a mut dyn Write,
    json: bool,
}

impl<'a> Printer<'a> {
    /// Prints to `out`.
    pub fn new(out: &'a mut dyn Write, json: bool) -> Self {
        Self { out, json }
    }

    /// Prints `form` as JSON if JSON was asked for, else what `human` prints.
    pub fn print<T: Serialize>(
        &mut self,
        form: &T,
        human: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut *self.out, form)?;
            writeln!(self.out)?;
        } else {
            human(self.out)?;
        }
        self.out.flush()
    }
}

/// Copies what a reader holds to the output; `unreadable` says what it was.
pub fn copy_out(
    reader: &mut dyn Read,
    out: &mut dyn Write,
    unreadable: impl FnOnce(io::Error) -> CommandError,
) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(out.flush()?),
            Ok(length) => out.write_all(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
}

/// Prints rows with aligned columns; the last column is not padded, and control characters are escaped.
pub fn table(out: &mut dyn Write, indent: &str, rows: &[Vec<String>]) -> io::Result<()> {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{indent}{}", line.trim_end())?;
    }
    Ok(())
}

/// The letter of an action, as `status` and `log` show it.
pub fn letter(action: Action) -> char {
    match action {
        Action::Added => 'A',
        Action::Modified => 'M',
        Action::Deleted => 'D',
        Action::Renamed => 'R',
    }
}

/// A size for people: `12 B`, `3.4 KiB`.
pub fn human_size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// How long a lease still lasts: `7h59m left`, or `ended`.
pub fn time_left(lease: &Lease, now: Instant) -> String {
    if !lease.is_live(now) {
        return "ended".into();
    }
    let left_ms = if lease.boot == now.boot {
        lease.expires_boot_ms - now.boot_ms
    } else {
        (lease.expires.0 - now.wall.0) / 1_000_000
    };
    let seconds = left_ms / 1_000;
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s left"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds:02}s left"),
        (0, hours, minutes, _) => format!("{hours}h{minutes:02}m left"),
        (days, hours, _, _) => format!("{days}d{hours:02}h left"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::model::{Generation, ResourceKey};

    #[test]
    fn tables_align_and_never_pass_control_characters_on() {
        let mut out = Vec::new();
        let rows =
            [vec!["a".into(), "é\u{1b}".into(), "x".into()], vec!["bbb".into(), "c".into(), String::new()]];
        table(&mut out, "  ", &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  a    é\\x1b  x\n  bbb  c\n");
    }

    #[test]
    fn time_left_is_told_in_two_units() {
        let now = ManualClock::new().now();
        let left = |ms: i64| {
            let lease = Lease {
                key: ResourceKey::Free("thread:1".into()),
                holder: "ada@desk".parse().unwrap(),
                generation: Generation(1),
                expires_boot_ms: now.boot_ms + ms,
                boot: now.boot,
                expires: now.wall,
                fenced: false,
            };
            time_left(&lease, now)
        };
        assert_eq!(left(0), "ended");
        assert_eq!(left(59_999), "59s left");
        assert_eq!(left(61_000), "1m01s left");
        assert_eq!(left(8 * 3_600_000 - 1), "7h59m left");
        assert_eq!(left(50 * 3_600_000), "2d02h left");
    }
}
