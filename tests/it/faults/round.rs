//! What a holder does in one round, and what has to be there afterwards by what was acknowledged.

use std::collections::BTreeMap;
use std::path::Path;

use libc::{O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY};

use super::desk::Desk;
use crate::agent::App;
use crate::kernel::{self, Sys};

const IN_PLACE: &str = "in place.txt";
const RENAMED: &str = "renamed.txt";
const MIDDLE: &str = "middle.txt";
const REMOVED: &str = "removed.txt";
const LIVE: &str = "live.sqlite";
const LATE: &str = "late.txt";
const OPEN: &str = "open.txt";
pub const DOCUMENTS: [&str; 7] = [IN_PLACE, RENAMED, MIDDLE, REMOVED, LIVE, LATE, OPEN];

/// The size of the document that is changed in its middle: its copy takes a call of its own.
const LARGE: usize = 300_000;

/// What a name has; none: nothing is there.
type Content = Option<Vec<u8>>;

/// The bytes of one save: no two are alike.
pub fn text(round: usize, what: &str, length: usize) -> Vec<u8> {
    let line = format!("{what} in round {round}\n");
    line.repeat(1 + length / line.len()).into_bytes()
}

pub fn length_of(name: &str) -> usize {
    if name == MIDDLE { LARGE } else { 4_000 }
}

/// One round.
pub struct Round {
    number: usize,
    app: Option<App>,
    open: Option<i32>,
    /// What each name may have now: after an acknowledged save that save alone.
    pub may_be: BTreeMap<String, Vec<Content>>,
    /// What each name could have when the check-in was asked for.
    pub at_check_in: BTreeMap<String, Vec<Content>>,
    /// Whole contents whose last write was acknowledged: they are saves, or recovery copies.
    pub written: Vec<(String, Vec<u8>)>,
    pub checked_in: bool,
    /// The steps that were refused, and why.
    pub refused: Vec<String>,
}

impl Round {
    /// Saves in every way, checks in, saves once more, and leaves a file open with bytes that no save holds.
    pub fn work(desk: &Desk, number: usize, documents: &BTreeMap<String, Vec<u8>>) -> Self {
        let may_be: BTreeMap<String, Vec<Content>> =
            documents.iter().map(|(name, bytes)| (name.clone(), vec![Some(bytes.clone())])).collect();
        let (app, at_check_in) = (Some(desk.app()), may_be.clone());
        let (open, written, checked_in, refused) = (None, Vec::new(), false, Vec::new());
        let mut round = Self { number, app, open, may_be, at_check_in, written, checked_in, refused };
        let at = desk.path("");
        round.step("save in place", |round| round.save_in_place(&at, IN_PLACE));
        round.step("save by rename", |round| round.save_by_rename(&at));
        round.step("change in the middle", |round| round.change_in_the_middle(&at, &documents[MIDDLE]));
        round.step("remove and create", |round| round.remove_and_create(&at));
        round.step("new directory", |round| round.make_in_new_directory(&at));
        round.step("live file", |round| round.change_live(&at, &documents[LIVE]));
        round.check_in(desk, documents);
        round.step("save after the check-in", |round| round.save_in_place(&at, LATE));
        round.step("leave open", |round| round.leave_open(&at));
        round
    }

    fn step(&mut self, what: &str, step: impl FnOnce(&mut Self) -> Sys<()>) {
        if let Err(errno) = step(self) {
            self.refused.push(format!("{what}: {errno:?}"));
        }
    }

    fn app(&self) -> &App {
        self.app.as_ref().unwrap()
    }

    /// The application, which may still have a file open.
    pub fn take_app(&mut self) -> Option<App> {
        self.app.take()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        text(self.number, name, length_of(name))
    }

    /// A save was acknowledged.
    fn is(&mut self, name: &str, content: Content) {
        self.may_be.insert(name.to_owned(), vec![content]);
    }

    /// A save was asked for.
    fn becomes(&mut self, name: &str, content: Content) {
        self.may_be.entry(name.to_owned()).or_insert_with(|| vec![None]).push(content);
    }

    /// Closes what is written: that is the save.
    fn close_as(&mut self, fd: i32, name: &str, bytes: &[u8]) -> Sys<()> {
        self.written.push((name.to_owned(), bytes.to_vec()));
        self.becomes(name, Some(bytes.to_vec()));
        self.app().close(fd)?;
        self.is(name, Some(bytes.to_vec()));
        Ok(())
    }

    fn write_or_close(&self, fd: i32, at: i64, bytes: &[u8]) -> Sys<()> {
        let written = self.app().write_at(fd, at, bytes);
        if written.is_err() {
            let _ = self.app().close(fd);
        }
        written
    }

    fn save_in_place(&mut self, at: &Path, name: &str) -> Sys<()> {
        let bytes = self.bytes(name);
        let fd = self.app().open(&at.join(name), O_WRONLY | O_TRUNC)?;
        self.write_or_close(fd, 0, &bytes)?;
        self.close_as(fd, name, &bytes)
    }

    fn save_by_rename(&mut self, at: &Path) -> Sys<()> {
        let (bytes, temp) = (self.bytes(RENAMED), at.join(format!("{RENAMED}.Ab12Cd")));
        let fd = self.app().open(&temp, O_WRONLY | O_CREAT | O_TRUNC)?;
        self.write_or_close(fd, 0, &bytes)?;
        let synced = self.app().fsync(fd);
        let closed = self.app().close(fd);
        synced.and(closed)?;
        self.becomes(RENAMED, Some(bytes.clone()));
        self.app().rename(&temp, &at.join(RENAMED), 0)?;
        self.is(RENAMED, Some(bytes));
        Ok(())
    }

    fn change_in_the_middle(&mut self, at: &Path, before: &[u8]) -> Sys<()> {
        let (first, second) = (patched(before, 1_000, self.number), patched(before, 200_000, self.number));
        let fd = self.app().open(&at.join(MIDDLE), O_RDWR)?;
        self.write_or_close(fd, 1_000, &first[1_000..1_100])?;
        self.becomes(MIDDLE, Some(first.clone()));
        let synced = self.app().fsync(fd);
        if synced.is_err() {
            let _ = self.app().close(fd);
            return synced;
        }
        self.is(MIDDLE, Some(first.clone()));
        let both = [&first[..200_000], &second[200_000..]].concat();
        self.write_or_close(fd, 200_000, &both[200_000..200_100])?;
        self.close_as(fd, MIDDLE, &both)
    }

    fn remove_and_create(&mut self, at: &Path) -> Sys<()> {
        let (bytes, path) = (self.bytes(REMOVED), at.join(REMOVED));
        self.becomes(REMOVED, None);
        self.app().unlink(&path)?;
        self.is(REMOVED, None);
        self.create(&path, REMOVED, &bytes)
    }

    fn create(&mut self, path: &Path, name: &str, bytes: &[u8]) -> Sys<()> {
        self.becomes(name, Some(Vec::new()));
        let fd = self.app().open(path, O_WRONLY | O_CREAT | O_EXCL)?;
        self.is(name, Some(Vec::new()));
        self.write_or_close(fd, 0, bytes)?;
        self.close_as(fd, name, bytes)
    }

    fn make_in_new_directory(&mut self, at: &Path) -> Sys<()> {
        let dir = format!("dir {}", self.number);
        kernel::mkdir(&at.join(&dir))?;
        let name = format!("{dir}/new.txt");
        let bytes = self.bytes(&name);
        self.create(&at.join(&name), &name, &bytes)
    }

    /// Of a file that is written in place the last write is there, saved or not.
    fn change_live(&mut self, at: &Path, before: &[u8]) -> Sys<()> {
        let after = patched(before, 500, self.number);
        let fd = self.app().open(&at.join(LIVE), O_RDWR)?;
        self.becomes(LIVE, Some(after.clone()));
        self.write_or_close(fd, 500, &after[500..600])?;
        self.is(LIVE, Some(after));
        self.app().close(fd)
    }

    fn check_in(&mut self, desk: &Desk, documents: &BTreeMap<String, Vec<u8>>) {
        self.at_check_in = self.may_be.clone();
        let ran = desk.check_in();
        if ran.status != 0 {
            assert!(!ran.stderr.is_empty(), "a check-in failed with status {} and no word", ran.status);
            return self.refused.push(format!("check in: {}", ran.stderr.trim_end()));
        }
        self.checked_in = !ran.json()["change"].is_null();
        if !self.checked_in {
            // There was nothing to check in, says whoever found no save.
            let is_unsaved =
                |(name, before): (&String, &Vec<u8>)| self.may_be[name].contains(&Some(before.clone()));
            assert!(documents.iter().all(is_unsaved), "saves were left out of a check-in");
        }
    }

    fn leave_open(&mut self, at: &Path) -> Sys<()> {
        let bytes = self.bytes(OPEN);
        let fd = self.app().open(&at.join(OPEN), O_WRONLY | O_TRUNC)?;
        self.write_or_close(fd, 0, &bytes)?;
        self.written.push((OPEN.to_owned(), bytes));
        self.open = Some(fd);
        Ok(())
    }

    pub fn is_open(&self, name: &str) -> bool {
        self.open.is_some() && name == OPEN
    }

    /// Closes the file that was left open.
    pub fn close_open(&mut self) {
        let Some(fd) = self.open.take() else { return };
        let bytes = self.bytes(OPEN);
        self.becomes(OPEN, Some(bytes.clone()));
        match self.app().close(fd) {
            Ok(()) => self.is(OPEN, Some(bytes)),
            Err(errno) => self.refused.push(format!("close: {errno:?}")),
        }
    }

    /// Everything was saved and checked in again, and nothing of it may change any more.
    pub fn replaced_by(&mut self, saved: &BTreeMap<String, Vec<u8>>) {
        let now = |name: &String| (name.clone(), vec![saved.get(name).cloned()]);
        self.may_be = self.may_be.keys().map(now).collect();
        (self.at_check_in, self.checked_in) = (self.may_be.clone(), false);
    }
}

/// Bytes with a hundred of them changed.
fn patched(before: &[u8], at: usize, round: usize) -> Vec<u8> {
    let mut after = before.to_vec();
    let patch = format!("{:-^100}", format!(" round {round} "));
    after[at..at + 100].copy_from_slice(patch.as_bytes());
    after
}
