//! The table `[remote]`: a shared store behind that of the workspace. Nothing here repeats an address or a token.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, Source};
use crate::model::DownloadPolicy;
use crate::sys;

/// How long a token may be.
const TOKEN_BYTES: u64 = 4096;
/// How long a transfer may take by default.
const TIMEOUT_MS: i64 = 60_000;
/// The longest time that a transfer can be given.
const LONGEST_MS: i64 = 86_400_000;

/// The keys of the table as they were written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoteConfig {
    url: String,
    token_file: Option<Spanned<PathBuf>>,
    policy: Option<Spanned<String>>,
    upload_timeout: Option<Spanned<String>>,
    download_timeout: Option<Spanned<String>>,
    write_back_timeout: Option<Spanned<String>>,
}

/// Where a shared store is, and what is kept of what it sends.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// The address below which `cas/` lies.
    pub url: String,
    /// The bearer token for each request.
    pub token: Option<String>,
    /// What is kept here.
    pub policy: DownloadPolicy,
    /// How long an upload may take, in milliseconds; positive.
    pub upload_timeout_ms: i64,
    /// How long a download may take, in milliseconds; positive.
    pub download_timeout_ms: i64,
    /// How long a reader waits until what was downloaded is stored here, in milliseconds; positive.
    pub write_back_timeout_ms: i64,
}

/// Without address and token.
impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// Without address and token.
impl fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteConfig").finish_non_exhaustive()
    }
}

impl RemoteConfig {
    pub(super) fn resolve(self, source: &Source<'_>) -> Result<Remote, ConfigError> {
        let timeout = |key, value: Option<Spanned<String>>| {
            let span = value.as_ref().map_or(0..0, Spanned::span);
            let timeout_ms = source.duration_ms(key, value, TIMEOUT_MS)?;
            let usable = timeout_ms <= LONGEST_MS;
            usable
                .then_some(timeout_ms)
                .ok_or_else(|| source.remote(span.start, "a timeout is longer than a day"))
        };
        Ok(Remote {
            url: self.url,
            token: self.token_file.map(|path| token(source, &path)).transpose()?,
            policy: self.policy.map_or(Ok(DownloadPolicy::default()), |name| policy(source, &name))?,
            upload_timeout_ms: timeout("remote.upload_timeout", self.upload_timeout)?,
            download_timeout_ms: timeout("remote.download_timeout", self.download_timeout)?,
            write_back_timeout_ms: timeout("remote.write_back_timeout", self.write_back_timeout)?,
        })
    }
}

fn policy(source: &Source<'_>, name: &Spanned<String>) -> Result<DownloadPolicy, ConfigError> {
    DownloadPolicy::from_name(name.get_ref())
        .ok_or_else(|| source.remote(name.span().start, "\"policy\" is \"all\", \"toplevel\" or \"minimal\""))
}

/// Reads the token from a file that nobody but its owner may read, or in a shared workspace the group as well.
fn token(source: &Source<'_>, named: &Spanned<PathBuf>) -> Result<String, ConfigError> {
    let dir = source.path.parent().unwrap_or(Path::new(""));
    let path = dir.join(named.get_ref());
    read_token(&path, sys::sharing_group(dir)).map_err(|problem| source.remote(named.span().start, problem))
}

fn read_token(path: &Path, group: Option<u32>) -> Result<String, &'static str> {
    const OF_OTHERS: u32 = 0o077;
    const READ_BY_GROUP: u32 = 0o040;
    let unreadable = |_| "\"token_file\" can't be read";
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err("\"token_file\" is not a regular file");
    }
    let of_others = if group == Some(metadata.gid()) { OF_OTHERS & !READ_BY_GROUP } else { OF_OTHERS };
    if metadata.permissions().mode() & of_others != 0 {
        return Err("\"token_file\" is open to others than its owner; chmod 600 it");
    }
    let mut bytes = Vec::new();
    file.take(TOKEN_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let token = bytes.trim_ascii();
    if token.is_empty() || bytes.len() as u64 > TOKEN_BYTES || !token.iter().all(u8::is_ascii_graphic) {
        return Err("\"token_file\" has no token of 1 to 4096 letters, digits and signs of ASCII");
    }
    Ok(token.iter().map(|byte| char::from(*byte)).collect())
}
