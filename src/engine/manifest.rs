//! Manifests: a blob for each change that tells what the catalog's rows tell, for whoever has lost the catalog.
//!
//! The first line is [`MAGIC`], the second the change, then one line for each item: JSON (docs/FORMAT.md).

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::files::{file_error, remove_file};
use super::{Result, StagingName, Workspace};
use crate::blobs::NoteError;
use crate::catalog::{ChangeFacts, ItemFacts, Place};
use crate::model::{
    ArtifactId, Attrs, ChangeNumber, CheckoutId, Content, Digest, Ino, Kind, Name, Seq, Timestamp,
    VersionInfo, VersionNumber,
};
use crate::sys;

/// The first line of every manifest; another number is another format.
pub(super) const MAGIC: &str = "leasehold-manifest 1\n";

/// How many items are read from the catalog at once.
const ITEMS_AT_ONCE: u32 = 4_096;

/// A manifest that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    pub change: ChangeFacts,
    pub items: Vec<ItemFacts>,
}

impl Workspace {
    /// Stores the manifests of changes that have none yet.
    ///
    /// A change is complete without: what fails here is logged, and tried again after the next one.
    pub fn store_manifests(&self) {
        let stored = self
            .in_catalog(self.catalog().changes_without_manifest())
            .and_then(|changes| changes.into_iter().try_for_each(|change| self.store_manifest(change)));
        if let Err(error) = stored {
            tracing::warn!(error = &error as &dyn std::error::Error, "can't store the manifest of a change");
        }
    }

    /// Makes manifests again whose blob is not whole.
    pub(super) fn renew_manifests(&self) -> Result<()> {
        for (change, manifest) in self.in_catalog(self.catalog().manifests())? {
            if !self.blobs().is_whole(&manifest)? {
                self.store_manifest(change)?;
            }
        }
        Ok(())
    }

    /// The digest is noted before the file leaves `staging/`, so that no collector takes the manifest for garbage.
    fn store_manifest(&self, number: ChangeNumber) -> Result<()> {
        let Some(change) = self.in_catalog(self.catalog().change_facts(number))? else { return Ok(()) };
        let name = StagingName::of_nobody(self.ids().token()).to_string();
        let path = self.layout().staging().join(&name);
        let file = sys::create_private(&path).map_err(file_error("create", &path))?;
        let written = self.write_manifest(&change, BufWriter::new(file)).and_then(|()| {
            let mut note = |digests: &[(PathBuf, Digest)]| {
                let noted =
                    digests.iter().try_for_each(|(_, digest)| self.catalog().note_manifest(&name, digest));
                noted.map_err(|error| Arc::new(error) as NoteError)
            };
            let adopted = self.blobs().adopt_noting(std::slice::from_ref(&path), &mut note).pop();
            adopted.expect("BUG: one file has one result")?;
            self.in_catalog(self.catalog().set_manifest(number, &name))
        });
        if written.is_err() {
            remove_file(&path)?;
        }
        written
    }

    fn write_manifest(&self, change: &ChangeFacts, mut out: BufWriter<File>) -> Result<()> {
        let staging = self.layout().staging();
        let failed = || file_error("write a manifest in", &staging);
        out.write_all(MAGIC.as_bytes())
            .and_then(|()| write_line(&mut out, &ChangeLine::of(change)))
            .map_err(failed())?;
        let mut after = Seq(0);
        loop {
            let items = self.in_catalog(self.catalog().item_facts(change.number, after, ITEMS_AT_ONCE))?;
            let Some(last) = items.last() else { break };
            after = last.artifact;
            let mut lines = items.iter().map(ItemLine::of);
            lines.try_for_each(|line| write_line(&mut out, &line)).map_err(failed())?;
        }
        out.flush().map_err(failed())
    }
}

fn write_line(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Whether bytes begin as a manifest does.
pub(super) fn is_manifest(mut bytes: impl Read) -> bool {
    let mut head = [0; MAGIC.len()];
    bytes.read_exact(&mut head).is_ok() && head == MAGIC.as_bytes()
}

/// Reads a manifest; the error says what this program does not understand in it.
pub(super) fn read_manifest(bytes: impl Read) -> io::Result<Manifest> {
    let mut lines = BufReader::new(bytes).lines();
    let mut next = || lines.next().transpose();
    if next()?.is_none_or(|line| line != MAGIC.trim_end()) {
        return Err(bad("first line"));
    }
    let change: ChangeLine = serde_json::from_str(&next()?.ok_or_else(|| bad("change"))?)?;
    let mut items = Vec::new();
    while let Some(line) = next()? {
        items.push(serde_json::from_str::<ItemLine>(&line)?.read()?);
    }
    Ok(Manifest { change: change.read()?, items })
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a manifest with a bad {what}"))
}

/// Bytes that are usually text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Bytes { bytes: Vec<u8> },
}

impl Text {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Plain(text.to_owned()),
            Err(_) => Self::Bytes { bytes: bytes.to_vec() },
        }
    }

    fn read(self) -> Vec<u8> {
        match self {
            Self::Plain(text) => text.into_bytes(),
            Self::Bytes { bytes } => bytes,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeLine {
    workspace: String,
    change: i64,
    at: i64,
    author: String,
    message: String,
    previous: Option<String>,
    next_number: i64,
    next_generation: i64,
    checkouts: Vec<(i64, String)>,
}

impl ChangeLine {
    fn of(change: &ChangeFacts) -> Self {
        Self {
            workspace: change.workspace.to_string(),
            change: change.number.0,
            at: change.at.0,
            author: change.author.to_string(),
            message: change.message.clone(),
            previous: change.previous.map(|digest| digest.to_hex()),
            next_number: change.next_number,
            next_generation: change.next_generation,
            checkouts: change.checkouts.iter().map(|(id, holder)| (id.0, holder.to_string())).collect(),
        }
    }

    fn read(self) -> io::Result<ChangeFacts> {
        let checkout =
            |(id, holder): (i64, String)| Ok((CheckoutId(id), holder.parse().map_err(|_| bad("holder"))?));
        Ok(ChangeFacts {
            workspace: read_id(&self.workspace)?,
            number: ChangeNumber(self.change),
            at: Timestamp(self.at),
            author: self.author.parse().map_err(|_| bad("author"))?,
            message: self.message,
            previous: self.previous.map(|text| read_digest(&text)).transpose()?,
            next_number: self.next_number,
            next_generation: self.next_generation,
            checkouts: self.checkouts.into_iter().map(checkout).collect::<io::Result<_>>()?,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemLine {
    artifact: i64,
    id: String,
    kind: String,
    before: Option<(i64, Text)>,
    after: Option<(i64, Text)>,
    version: Option<VersionLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionLine {
    number: i64,
    base: Option<i64>,
    ino: u64,
    kind: String,
    mode: u32,
    size: u64,
    digest: Option<String>,
    target: Option<Text>,
    mtime: i64,
    ctime: i64,
}

impl ItemLine {
    fn of(item: &ItemFacts) -> Self {
        let place = |place: &Place| (place.parent.0, Text::of(place.name.as_bytes()));
        let base = item.base.map(|base| base.0);
        Self {
            artifact: item.artifact.0,
            id: item.id.to_string(),
            kind: kind_text(item.kind).to_owned(),
            before: item.before.as_ref().map(place),
            after: item.after.as_ref().map(place),
            version: item.version.as_ref().map(|version| VersionLine::of(version, base)),
        }
    }

    fn read(self) -> io::Result<ItemFacts> {
        let place = |(parent, name): (i64, Text)| {
            let name = Name::new(name.read()).map_err(|_| bad("name"))?;
            Ok::<_, io::Error>(Place { parent: Seq(parent), name })
        };
        let artifact = Seq(self.artifact);
        let base = self.version.as_ref().and_then(|version| version.base).map(VersionNumber);
        Ok(ItemFacts {
            artifact,
            id: read_id(&self.id)?,
            kind: read_kind(&self.kind)?,
            before: self.before.map(place).transpose()?,
            after: self.after.map(place).transpose()?,
            version: self.version.map(|version| version.read(artifact)).transpose()?,
            base,
        })
    }
}

impl VersionLine {
    fn of(version: &VersionInfo, base: Option<i64>) -> Self {
        let (digest, target) = match &version.content {
            Content::Blob(digest) => (Some(digest.to_hex()), None),
            Content::Target(target) => (None, Some(Text::of(target))),
            Content::None | Content::Staged(_) | Content::Direct(_) => (None, None),
        };
        Self {
            number: version.number.0,
            base,
            ino: version.ino.0,
            kind: kind_text(version.kind).to_owned(),
            mode: version.attrs.mode,
            size: version.size,
            digest,
            target,
            mtime: version.attrs.mtime.0,
            ctime: version.attrs.ctime.0,
        }
    }

    fn read(self, artifact: Seq) -> io::Result<VersionInfo> {
        let (mtime, ctime) = (Timestamp(self.mtime), Timestamp(self.ctime));
        let content = match (self.digest, self.target) {
            (Some(digest), None) => Content::Blob(read_digest(&digest)?),
            (None, Some(target)) => Content::Target(target.read()),
            (None, None) => Content::None,
            (Some(_), Some(_)) => return Err(bad("content")),
        };
        Ok(VersionInfo {
            artifact,
            number: VersionNumber(self.number),
            ino: Ino(self.ino),
            kind: read_kind(&self.kind)?,
            attrs: Attrs { mode: self.mode & 0o7777, uid: 0, gid: 0, atime: mtime, mtime, ctime },
            size: self.size,
            content,
        })
    }
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::File, "file"),
    (Kind::Symlink, "symlink"),
    (Kind::Directory, "directory"),
    (Kind::Fifo, "fifo"),
    (Kind::Socket, "socket"),
];

fn kind_text(kind: Kind) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).expect("BUG: each kind has a text").1
}

fn read_kind(text: &str) -> io::Result<Kind> {
    KINDS.iter().find(|(_, known)| *known == text).map(|(kind, _)| *kind).ok_or_else(|| bad("kind"))
}

fn read_id(text: &str) -> io::Result<ArtifactId> {
    Uuid::parse_str(text).map(ArtifactId).map_err(|_| bad("identity"))
}

fn read_digest(text: &str) -> io::Result<Digest> {
    text.parse().map_err(|_| bad("digest"))
}
