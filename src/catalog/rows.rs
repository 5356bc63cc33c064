//! How values are stored in columns.

use rusqlite::Row;
use uuid::Uuid;

use crate::model::{
    ArtifactId, Attrs, Content, Digest, Entry, Generation, Holder, Ino, Kind, Layer, Lease, Name,
    ResourceKey, Scratch, Seq, Timestamp, VersionNumber,
};

/// A value of the database that this program can't have written.
#[derive(Debug, thiserror::Error)]
#[error("the catalog holds a bad {0}")]
struct BadValue(&'static str);

pub(super) fn bad(column: usize, what: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Blob, Box::new(BadValue(what)))
}

pub(super) fn kind_code(kind: Kind) -> i64 {
    match kind {
        Kind::File => 1,
        Kind::Symlink => 2,
        Kind::Directory => 3,
        Kind::Fifo => 4,
        Kind::Socket => 5,
    }
}

pub(super) fn kind_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Kind> {
    match row.get::<_, i64>(column)? {
        1 => Ok(Kind::File),
        2 => Ok(Kind::Symlink),
        3 => Ok(Kind::Directory),
        4 => Ok(Kind::Fifo),
        5 => Ok(Kind::Socket),
        _ => Err(bad(column, "kind")),
    }
}

pub(super) fn scratch_code(scratch: Scratch) -> i64 {
    match scratch {
        Scratch::No => 0,
        Scratch::Provisional => 1,
        Scratch::Yes => 2,
    }
}

fn scratch_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Scratch> {
    match row.get::<_, i64>(column)? {
        0 => Ok(Scratch::No),
        1 => Ok(Scratch::Provisional),
        2 => Ok(Scratch::Yes),
        _ => Err(bad(column, "scratch class")),
    }
}

pub(super) fn ino_code(ino: Ino) -> i64 {
    ino.0.cast_signed()
}

pub(super) fn ino_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Ino> {
    row.get::<_, i64>(column).map(|n| Ino(n.cast_unsigned()))
}

pub(super) fn size_code(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

pub(super) fn size_at(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|_| bad(column, "size"))
}

pub(super) fn name_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Name> {
    let bytes = row.get_ref(column)?.as_blob()?;
    Name::new(bytes).map_err(|_| bad(column, "name"))
}

pub(super) fn digest_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Digest>> {
    let Some(bytes) = row.get_ref(column)?.as_blob_or_null()? else { return Ok(None) };
    bytes.try_into().map(|b| Some(Digest::from_bytes(b))).map_err(|_| bad(column, "digest"))
}

pub(super) fn id_at(row: &Row<'_>, column: usize) -> rusqlite::Result<ArtifactId> {
    row.get::<_, Uuid>(column).map(ArtifactId)
}

pub(super) fn holder_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Holder> {
    row.get_ref(column)?.as_str()?.parse().map_err(|_| bad(column, "holder"))
}

/// The columns of `head` that [`head_entry`] reads.
pub(super) const HEAD_COLUMNS: &str = "h.artifact, h.id, h.parent, h.name, h.kind, h.ino, h.mode, h.size, h.digest, h.target, h.mtime, h.ctime, h.version";

/// Reads a row of [`HEAD_COLUMNS`] that start at 0. The owner is filled in by the mount.
pub(super) fn head_entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let artifact = Seq(row.get(0)?);
    let name = if artifact == Seq::ROOT { root_name() } else { name_at(row, 3)? };
    let (mtime, ctime) = (Timestamp(row.get(10)?), Timestamp(row.get(11)?));
    let target: Option<Vec<u8>> = row.get(9)?;
    let ino = ino_at(row, 5)?;
    Ok(Entry {
        artifact,
        id: id_at(row, 1)?,
        parent: Seq(row.get(2)?),
        name,
        kind: kind_at(row, 4)?,
        ino,
        attrs: Attrs { mode: row.get(6)?, uid: 0, gid: 0, atime: mtime, mtime, ctime },
        size: size_at(row, 7)?,
        content: match (digest_at(row, 8)?, target) {
            (Some(digest), _) => Content::Blob(digest),
            (None, Some(target)) => Content::Target(target),
            (None, None) => Content::None,
        },
        layer: Layer::Head,
        scratch: Scratch::No,
        head: Some(VersionNumber(row.get(12)?)),
        head_ino: Some(ino),
    })
}

/// A stand-in: the root has no name of its own.
fn root_name() -> Name {
    Name::new("root").expect("BUG: a constant name is valid")
}

/// The columns of `draft` that [`draft_row`] reads.
pub(super) const DRAFT_COLUMNS: &str = "d.ino, d.kind, d.mode, d.uid, d.gid, d.size, d.digest, d.staged, d.direct, d.target, d.atime, d.mtime, d.ctime, d.base, d.generation, d.scratch";

/// A row of `draft`, without the name that it has.
#[derive(Debug, Clone)]
pub(super) struct DraftRow {
    pub ino: Ino,
    pub kind: Kind,
    pub attrs: Attrs,
    pub size: u64,
    pub content: Content,
    pub base: Option<VersionNumber>,
    pub generation: Option<Generation>,
    pub scratch: Scratch,
}

/// Reads a row of [`DRAFT_COLUMNS`] that start at `first`.
pub(super) fn draft_row(row: &Row<'_>, first: usize) -> rusqlite::Result<DraftRow> {
    let at = |offset: usize| first + offset;
    let staged: Option<String> = row.get(at(7))?;
    let direct: Option<String> = row.get(at(8))?;
    let target: Option<Vec<u8>> = row.get(at(9))?;
    let content = match (digest_at(row, at(6))?, staged, direct, target) {
        (_, Some(staged), _, _) => Content::Staged(staged),
        (_, _, Some(direct), _) => Content::Direct(direct),
        (Some(digest), ..) => Content::Blob(digest),
        (.., Some(target)) => Content::Target(target),
        _ => Content::None,
    };
    Ok(DraftRow {
        ino: ino_at(row, first)?,
        kind: kind_at(row, at(1))?,
        attrs: Attrs {
            mode: row.get(at(2))?,
            uid: row.get(at(3))?,
            gid: row.get(at(4))?,
            atime: Timestamp(row.get(at(10))?),
            mtime: Timestamp(row.get(at(11))?),
            ctime: Timestamp(row.get(at(12))?),
        },
        size: size_at(row, at(5))?,
        content,
        base: row.get::<_, Option<i64>>(at(13))?.map(VersionNumber),
        generation: row.get::<_, Option<i64>>(at(14))?.map(Generation),
        scratch: scratch_at(row, at(15))?,
    })
}

/// Reads a row of `lease`: key, holder, generation, boot, expires_boot_ms, expires, fenced.
pub(super) fn lease_row(row: &Row<'_>) -> rusqlite::Result<Lease> {
    let key: ResourceKey = row.get_ref(0)?.as_str()?.parse().map_err(|_| bad(0, "resource key"))?;
    Ok(Lease {
        key,
        holder: holder_at(row, 1)?,
        generation: Generation(row.get(2)?),
        boot: row.get(3)?,
        expires_boot_ms: row.get(4)?,
        expires: Timestamp(row.get(5)?),
        fenced: row.get(6)?,
    })
}

/// The four columns that a content is stored in: digest, staged, direct, target.
pub(super) type ContentColumns<'a> = (Option<&'a [u8]>, Option<&'a str>, Option<&'a str>, Option<&'a [u8]>);

pub(super) fn content_columns(content: &Content) -> ContentColumns<'_> {
    match content {
        Content::None => (None, None, None, None),
        Content::Blob(digest) => (Some(digest.as_bytes()), None, None, None),
        Content::Staged(name) => (None, Some(name), None, None),
        Content::Direct(name) => (None, None, Some(name), None),
        Content::Target(target) => (None, None, None, Some(target)),
    }
}
