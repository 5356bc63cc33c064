//! What a checkout does to the head tree, artifact by artifact.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension};

use super::error::doing;
use super::history::last_place;
use super::rows::DraftRow;
use super::view::{self, many, one};
use super::{Catalog, Place, Result};
use crate::model::{
    ArtifactId, ArtifactPath, Attrs, CheckoutId, Content, Entry, Ino, Kind, Scratch, Seq, VersionNumber,
};

/// One artifact that differs between a checkout and the head tree.
#[derive(Debug, Clone)]
pub(super) struct Delta {
    pub artifact: Seq,
    /// Its entry in the head tree.
    pub head: Option<Entry>,
    pub draft: Option<DraftRow>,
    /// Its place in the checkout; none where it is deleted there, or was deleted under it.
    pub place: Option<Place>,
    /// The version on which the checkout's change was made.
    pub base: Option<VersionNumber>,
    /// Whether the checkout has a say about the artifact's place in the head tree.
    pub hides_home: bool,
}

impl Delta {
    pub(super) fn home(&self) -> Option<Place> {
        self.head.as_ref().map(home_of)
    }

    pub(super) fn is_added(&self) -> bool {
        self.head.is_none()
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.head.is_some() && self.place.is_none()
    }

    pub(super) fn is_moved(&self) -> bool {
        self.head.is_some() && self.place.is_some() && self.place != self.home()
    }

    /// Whether kind, content, mode or a file's time differ from the head version.
    pub(super) fn is_modified(&self) -> bool {
        match (&self.head, &self.draft) {
            (Some(head), Some(draft)) => {
                head.kind != draft.kind
                    || head.attrs.mode != draft.attrs.mode
                    || (draft.kind != Kind::Directory && head.attrs.mtime != draft.attrs.mtime)
                    || !view::same_content(&head.content, &draft.content)
            }
            (_, draft) => draft.is_some(),
        }
    }

    /// Whether the head tree has all this already.
    pub(super) fn is_nothing(&self) -> bool {
        self.head.is_some() && self.place == self.home() && !self.is_modified()
    }

    /// Whether it is none of the check-in's business.
    pub(super) fn is_scratch(&self) -> bool {
        let scratch = |draft: &DraftRow| draft.scratch != Scratch::No || !draft.kind.is_versioned();
        self.head.is_none() && self.draft.as_ref().is_some_and(scratch)
    }
}

pub(super) fn home_of(head: &Entry) -> Place {
    Place { parent: head.parent, name: head.name.clone() }
}

/// A draft as it is listed: what is changed, deleted or moved in a checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftInfo {
    /// The artifact.
    pub artifact: Seq,
    /// Its identity.
    pub id: ArtifactId,
    /// What sort of thing it is.
    pub kind: Kind,
    /// Its path in the head tree; none where it is not there.
    pub before: Option<ArtifactPath>,
    /// Its path in the checkout; none where it is deleted there.
    pub after: Option<ArtifactPath>,
    /// Its path in the checkout, or the last one that it is known to have had.
    pub path: ArtifactPath,
    /// The version on which the draft was made.
    pub base: Option<VersionNumber>,
    /// The head version; none where it is not in the head tree.
    pub head: Option<VersionNumber>,
    /// Whether content, kind or mode differ from the head version.
    pub modified: bool,
    /// Whether the checkout moved it itself, not only a directory above it.
    pub moved: bool,
    /// Whether there is a draft row, with content and attributes of its own.
    pub drafted: bool,
    /// The inode number of the content state.
    pub ino: Ino,
    /// Mode, owner and times.
    pub attrs: Attrs,
    /// Where the bytes are.
    pub content: Content,
    /// The size of the last save, in bytes.
    pub size: u64,
}

impl DraftInfo {
    /// Whether the head has moved since the draft was begun.
    pub fn is_stale(&self) -> bool {
        self.head.map_or(self.base.is_some(), |head| self.base != Some(head))
    }
}

impl Catalog {
    /// Everything that a checkout changed and a check-in would look at, by path.
    pub fn drafts(&self, checkout: CheckoutId) -> Result<Vec<DraftInfo>> {
        self.read(|conn| {
            let deltas = deltas(conn, checkout)?;
            let infos = deltas.iter().map(|delta| draft_info(conn, checkout, delta));
            let mut infos: Vec<DraftInfo> = infos.collect::<Result<_>>()?;
            infos.sort_by(|a, b| a.path.cmp(&b.path));
            Ok(infos)
        })
    }

    /// The contents of a checkout that are files of `staging/` or `scratch/`, with their artifacts; scratch included, and
    /// what drafts fall back to if their last saves are lost.
    pub fn draft_files(&self, checkout: CheckoutId) -> Result<Vec<(Seq, Content)>> {
        let sql = "SELECT artifact, staged, direct FROM draft
            WHERE checkout = ?1 AND (staged IS NOT NULL OR direct IS NOT NULL)
            UNION ALL SELECT artifact, old_staged, NULL FROM draft WHERE checkout = ?1 AND old_staged IS NOT NULL
            ORDER BY artifact";
        self.read(|conn| {
            many(conn, "list draft files", sql, [checkout.0], |row| {
                let staged: Option<String> = row.get(1)?;
                let direct: Option<String> = row.get(2)?;
                let content = staged.map(Content::Staged).or(direct.map(Content::Direct));
                Ok((Seq(row.get(0)?), content.unwrap_or(Content::None)))
            })
        })
    }

    /// The number of scratch entries of a checkout.
    pub fn scratch_count(&self, checkout: CheckoutId) -> Result<u64> {
        let sql = "SELECT count(*) FROM draft WHERE checkout = ?1 AND scratch <> 0";
        self.read(|conn| {
            let count = one(conn, "count scratch", sql, [checkout.0], |row| row.get::<_, i64>(0))?;
            Ok(count.unwrap_or(0).unsigned_abs())
        })
    }

    /// Whether a check-in would find something to do about an artifact.
    pub fn is_changed(&self, checkout: CheckoutId, artifact: Seq) -> Result<bool> {
        self.read(|conn| {
            let delta = delta_of(conn, checkout, artifact)?;
            Ok(delta
                .is_some_and(|delta| !delta.is_scratch() && (delta.draft.is_some() || !delta.is_nothing())))
        })
    }

    /// The path of an artifact in a checkout, else in the head tree, else the last one that it is known to have had.
    pub fn any_path_of(&self, checkout: CheckoutId, artifact: Seq) -> Result<ArtifactPath> {
        self.read(|conn| any_path_of(conn, checkout, artifact))
    }
}

pub(super) fn any_path_of(conn: &Connection, checkout: CheckoutId, artifact: Seq) -> Result<ArtifactPath> {
    let path = view::climb(artifact, |at| match view::place_of(conn, checkout, at)? {
        Some(place) => Ok(Some(place)),
        None => match head_place(conn, at)? {
            Some(place) => Ok(Some(place)),
            None => last_place(conn, at),
        },
    })?;
    Ok(path.unwrap_or_default())
}

pub(super) fn head_place(conn: &Connection, artifact: Seq) -> Result<Option<Place>> {
    let sql = "SELECT parent, name FROM head WHERE artifact = ?1";
    one(conn, "read the head tree", sql, [artifact.0], view::place_at_row)
}

fn draft_info(conn: &Connection, checkout: CheckoutId, delta: &Delta) -> Result<DraftInfo> {
    let artifact = delta.artifact;
    let before = view::head_path_of(conn, artifact)?.filter(|_| delta.head.is_some());
    let after = if delta.place.is_some() { view::path_of(conn, checkout, artifact)? } else { None };
    let path = match &after {
        Some(path) => path.clone(),
        None => any_path_of(conn, checkout, artifact)?,
    };
    let body = match (&delta.draft, &delta.head) {
        (Some(draft), _) => (draft.kind, draft.ino, draft.attrs, draft.content.clone(), draft.size),
        (None, Some(head)) => (head.kind, head.ino, head.attrs, head.content.clone(), head.size),
        (None, None) => unreachable!("BUG: a delta has a head entry or a draft"),
    };
    let (kind, ino, attrs, content, size) = body;
    Ok(DraftInfo {
        artifact,
        id: view::id_of(conn, artifact)?,
        kind,
        before,
        after,
        path,
        base: delta.base,
        head: delta.head.as_ref().and_then(|head| head.head),
        modified: delta.is_modified(),
        moved: delta.is_moved(),
        drafted: delta.draft.is_some(),
        ino,
        attrs,
        content,
        size,
    })
}

/// Every artifact that a check-in looks at: with a draft, with another name, or whose name is hidden.
pub(super) fn deltas(conn: &Connection, checkout: CheckoutId) -> Result<Vec<Delta>> {
    let mut deltas = with_scratch(conn, checkout)?;
    deltas.retain(|delta| !delta.is_scratch());
    Ok(deltas)
}

/// As [`deltas`], and the scratch entries as well.
pub(super) fn with_scratch(conn: &Connection, checkout: CheckoutId) -> Result<Vec<Delta>> {
    let sql = "SELECT artifact FROM draft WHERE checkout = ?1
        UNION SELECT artifact FROM name WHERE checkout = ?1 AND artifact IS NOT NULL
        UNION SELECT h.artifact FROM name n JOIN head h ON h.parent = n.parent AND h.name = n.name
          WHERE n.checkout = ?1";
    let artifacts = many(conn, "list drafts", sql, [checkout.0], |row| row.get(0).map(Seq))?;
    let mut deltas = Vec::with_capacity(artifacts.len());
    for artifact in artifacts {
        deltas.extend(delta_of(conn, checkout, artifact)?);
    }
    Ok(deltas)
}

/// What a checkout does to one artifact; none where only a name without a draft is left of it.
pub(super) fn delta_of(conn: &Connection, checkout: CheckoutId, artifact: Seq) -> Result<Option<Delta>> {
    let head = view::head_of(conn, artifact)?;
    let draft = view::draft_of(conn, checkout, artifact)?;
    if head.is_none() && draft.is_none() {
        return Ok(None);
    }
    let home = head.as_ref().map(home_of);
    let place = match artifact {
        Seq::ROOT => home.clone(),
        _ => view::place_of(conn, checkout, artifact)?,
    };
    let hidden = match &home {
        Some(home) => hidden_base(conn, checkout, home)?,
        None => None,
    };
    let base = draft.as_ref().and_then(|draft| draft.base).or(hidden.flatten());
    Ok(Some(Delta { artifact, head, draft, place, base, hides_home: hidden.is_some() }))
}

/// Whether one of some paths (none: any) is the artifact's or a directory above it, in the checkout or the head tree.
pub(super) fn is_selected(
    conn: &Connection,
    checkout: CheckoutId,
    delta: &Delta,
    wanted: &[ArtifactPath],
) -> Result<bool> {
    if is_within_any(conn, checkout, delta.artifact, wanted)? {
        return Ok(true);
    }
    let mut paths = Vec::new();
    if let Some(home) = delta.home().filter(|_| delta.artifact != Seq::ROOT) {
        paths.extend(view::head_path_of(conn, delta.artifact)?);
        paths.push(any_path_of(conn, checkout, home.parent)?.join(home.name));
    }
    Ok(wanted.iter().any(|wanted| paths.iter().any(|path| path.is_within(wanted))))
}

/// Whether one of some paths (none: any) is the present or last path of an artifact, or a directory above it.
pub(super) fn is_within_any(
    conn: &Connection,
    checkout: CheckoutId,
    artifact: Seq,
    wanted: &[ArtifactPath],
) -> Result<bool> {
    if wanted.is_empty() {
        return Ok(true);
    }
    let path = any_path_of(conn, checkout, artifact)?;
    Ok(wanted.iter().any(|wanted| path.is_within(wanted)))
}

/// Whether a problem is settled by what was done to some artifacts, under some paths (none: any).
pub(super) fn is_settled(
    conn: &Connection,
    checkout: CheckoutId,
    problem: Option<Seq>,
    (done, paths): (&BTreeSet<Seq>, &[ArtifactPath]),
) -> Result<bool> {
    match problem {
        Some(artifact) => Ok(done.contains(&artifact) || is_within_any(conn, checkout, artifact, paths)?),
        None => Ok(paths.is_empty() || paths.iter().any(ArtifactPath::is_root)),
    }
}

/// Whether a checkout has a row for a name, and the version that the head's artifact had there when it was hidden.
fn hidden_base(conn: &Connection, checkout: CheckoutId, at: &Place) -> Result<Option<Option<VersionNumber>>> {
    let sql = "SELECT base FROM name WHERE parent = ?1 AND name = ?2 AND checkout = ?3";
    let mut statement = conn.prepare_cached(sql).map_err(doing("read a name"))?;
    let params = (at.parent.0, at.name.as_bytes(), checkout.0);
    let base = statement.query_row(params, |row| row.get::<_, Option<i64>>(0)).optional();
    Ok(base.map_err(doing("read a name"))?.map(|base| base.map(VersionNumber)))
}
