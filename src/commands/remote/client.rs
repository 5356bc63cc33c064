use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::super::error::CommandError;
use super::super::forms::{
    CheckInForm, Form, FormError, LeaseForm, PathForm, RevertForm, SettleForm, StatusForm, all, read_all,
};
use super::{Request, Response, address, file_name};
use crate::engine::{
    CheckInReport, CheckInRequest, CheckoutOps, EngineError, MountStatus, Result, RevertReport, SettleReport,
    StatusReport, Workspace,
};
use crate::model::{ArtifactPath, Digest, Holder, Lease, VersionNumber};

/// A working daemon sends something every two seconds; one that is silent for this long hangs or is stopped.
const SILENCE: Duration = Duration::from_secs(30);

/// A checkout that a daemon has mounted.
#[derive(Debug)]
pub struct Remote {
    run: PathBuf,
    name: String,
}

impl Remote {
    /// Reaches the daemon of a mounted checkout.
    ///
    /// # Errors
    ///
    /// [`CommandError::DaemonSilent`] where nobody listens: the catalog must not be changed behind a live daemon.
    pub fn of(
        workspace: &Workspace,
        holder: &Holder,
        mount: MountStatus,
    ) -> std::result::Result<Self, CommandError> {
        let remote = Self::at(&workspace.layout().run(), holder);
        match remote.connect() {
            Ok(_) => Ok(remote),
            Err(source) => {
                let MountStatus { mountpoint, pid, .. } = mount;
                Err(CommandError::DaemonSilent { mountpoint, pid, source })
            }
        }
    }

    /// The daemon of a holder's checkout, whose sockets are in `run`.
    pub fn at(run: &Path, holder: &Holder) -> Self {
        Self { run: run.to_owned(), name: file_name(holder, "sock") }
    }

    /// Asks the daemon to take its mount away and end; returns what could not be settled, a line each.
    pub fn unmount(&self, lazy: bool) -> Result<Vec<String>> {
        self.ask(&Request::Unmount { lazy })
    }

    fn connect(&self) -> io::Result<(File, UnixStream)> {
        let (directory, path) = address(&self.run, &self.name)?;
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(SILENCE))?;
        Ok((directory, stream))
    }

    fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        let failed = |source| EngineError::File {
            doing: "ask the mount's daemon through",
            path: self.run.join(&self.name),
            source,
        };
        match self.exchange(request).map_err(failed)? {
            Response::Ok(value) => serde_json::from_value(value).map_err(|error| failed(error.into())),
            Response::Error(error) => Err(error.read()),
        }
    }

    fn exchange(&self, request: &Request) -> io::Result<Response> {
        let (_directory, mut stream) = self.connect()?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let answer = read_answer(BufReader::new(stream)).map_err(name_silence)?;
        Ok(serde_json::from_slice(&answer)?)
    }

    fn read<F: Form>(&self, form: F) -> Result<F::Value> {
        form.read().map_err(|error| self.bad_answer(error))
    }

    fn bad_answer(&self, error: FormError) -> EngineError {
        let source = io::Error::new(io::ErrorKind::InvalidData, error);
        EngineError::File { doing: "understand the daemon at", path: self.run.join(&self.name), source }
    }
}

/// A socket's timeout comes as "try again", which says nothing to people (socket(7), `SO_RCVTIMEO`).
fn name_silence(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "it is silent: stopped, or hanging")
        }
        _ => error,
    }
}

/// Reads lines until one isn't empty; the empty ones only say that the daemon still works.
fn read_answer(mut stream: impl BufRead) -> io::Result<Vec<u8>> {
    loop {
        let mut line = Vec::new();
        if stream.by_ref().read_until(b'\n', &mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before it answered"));
        }
        if line != b"\n" {
            return Ok(line);
        }
    }
}

impl CheckoutOps for Remote {
    fn status(&self, under: &ArtifactPath) -> Result<StatusReport> {
        let form: StatusForm = self.ask(&Request::Status { under: PathForm::of(under) })?;
        self.read(form)
    }

    fn checkout(&self, paths: &[ArtifactPath]) -> Result<Vec<Lease>> {
        let forms: Vec<LeaseForm> = self.ask(&Request::Checkout { paths: all(paths) })?;
        read_all(forms).map_err(|error| self.bad_answer(error))
    }

    fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReport> {
        let form: CheckInForm = self.ask(&Request::CheckIn {
            paths: all(&request.paths),
            message: request.message.clone(),
            keep: request.keep,
            onto: request.onto.map(|version| version.0),
        })?;
        self.read(form)
    }

    fn revert(&self, paths: &[ArtifactPath]) -> Result<RevertReport> {
        let form: RevertForm = self.ask(&Request::Revert { paths: all(paths) })?;
        self.read(form)
    }

    fn save_as(&self, path: &ArtifactPath, new: &ArtifactPath) -> Result<()> {
        self.ask(&Request::SaveAs { path: PathForm::of(path), new: PathForm::of(new) })
    }

    fn settle(&self, under: &ArtifactPath) -> Result<SettleReport> {
        let form: SettleForm = self.ask(&Request::Settle { under: PathForm::of(under) })?;
        self.read(form)
    }

    fn add(&self, path: &ArtifactPath) -> Result<()> {
        self.ask(&Request::Add { path: PathForm::of(path) })
    }

    fn restore(&self, path: &ArtifactPath, version: VersionNumber) -> Result<()> {
        self.ask(&Request::Restore { path: PathForm::of(path), version: version.0 })
    }

    fn open_blobs(&self) -> Result<Vec<Digest>> {
        let texts: Vec<String> = self.ask(&Request::OpenBlobs)?;
        let digests = texts.iter().map(|text| text.parse());
        digests
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| self.bad_answer(FormError { field: "digest", expected: "digest" }))
    }
}
