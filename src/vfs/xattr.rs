//! Extended attributes: who has the lease and until when, and which artifact and version a file is.
//!
//! All are answered by name; listed is what `list_xattrs` says, since listed ones travel with `cp -a`. None can be
//! set: the refusal is `ENOTSUP`, which copying programs ignore (`ENOSYS` would end the call for the whole mount).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::node::{Node, State};
use super::{Caller, Result, Vfs, VfsError};
use crate::config::ListXattrs;
use crate::engine::Intent;
use crate::model::{Content, Ino, Kind, Lease, Scratch, Seq, VersionNumber};

/// The attributes that are there on every artifact, listed only with `list_xattrs = all`.
const ARTIFACT: [&str; 5] = [
    "user.artifact.id",
    "user.artifact.version",
    "user.artifact.digest",
    "user.artifact.draft",
    "user.artifact.base",
];

/// The attributes of a lease.
const LEASE: [&str; 5] = [
    "user.lease.holder",
    "user.lease.expires",
    "user.lease.generation",
    "user.lease.state",
    "user.lease.intents",
];

/// The attributes of the root directory that tell commands where they are.
const HOLDER: &str = "user.leasehold.holder";
const WORKSPACE: &str = "user.leasehold.workspace";

/// The digest of no bytes: an empty file has no blob.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// What a node's attributes are made of.
struct Facts {
    kind: Kind,
    content: Content,
    base: Option<VersionNumber>,
    draft: &'static str,
    artifact: Seq,
    id: String,
    scratch: bool,
}

impl Vfs {
    /// Reads an extended attribute.
    pub fn getxattr(&self, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        let name = name.to_str().ok_or(VfsError::NoAttribute)?;
        if ino == Ino::ROOT && name.starts_with("user.leasehold.") {
            return self.mount_attribute(name);
        }
        let known = ARTIFACT.contains(&name) || LEASE.contains(&name);
        if !known {
            return Err(VfsError::NoAttribute);
        }
        let node = self.node(ino)?;
        self.check_node_seen(&node)?;
        let facts = facts_of(&node);
        let value = if LEASE.contains(&name) {
            self.lease_attribute(name, &facts)?
        } else {
            self.artifact_attribute(name, &facts)?
        };
        value.map(String::into_bytes).ok_or(VfsError::NoAttribute)
    }

    fn mount_attribute(&self, name: &str) -> Result<Vec<u8>> {
        match name {
            HOLDER => Ok(self.options.holder.as_str().as_bytes().to_vec()),
            WORKSPACE => Ok(self.workspace.root().as_os_str().as_bytes().to_vec()),
            _ => Err(VfsError::NoAttribute),
        }
    }

    fn lease_attribute(&self, name: &str, facts: &Facts) -> Result<Option<String>> {
        if facts.scratch {
            return Ok(None);
        }
        match name {
            "user.lease.state" => return self.lease_state(facts).map(|word| Some(word.to_owned())),
            "user.lease.intents" => return self.intents_attribute(facts),
            _ => {}
        }
        let lease = match self.live_lease(facts)? {
            None => self.quarantined_lease(facts)?,
            live => live,
        };
        Ok(match (name, lease) {
            ("user.lease.holder", Some(lease)) => Some(lease.holder.to_string()),
            ("user.lease.expires", Some(lease)) => Some(lease.expires.to_rfc3339()),
            ("user.lease.generation", Some(lease)) => Some(lease.generation.to_string()),
            _ => None,
        })
    }

    /// `free`, `mine`, `held`, `quarantined`, or `intent`: free, but somebody else means to work on it.
    fn lease_state(&self, facts: &Facts) -> Result<&'static str> {
        let others = |lease: &Lease| lease.holder != self.options.holder;
        Ok(match self.live_lease(facts)? {
            Some(lease) if others(&lease) => "held",
            Some(_) => "mine",
            None if self.quarantined_lease(facts)?.is_some() => "quarantined",
            None if self.intents(facts)?.iter().any(|intent| others(&intent.lease)) => "intent",
            None => "free",
        })
    }

    /// The lease that ended and whose writer is not known to have stopped.
    fn quarantined_lease(&self, facts: &Facts) -> Result<Option<Lease>> {
        Ok(self.workspace.catalog().quarantined_lease(facts.artifact, self.now())?)
    }

    fn intents(&self, facts: &Facts) -> Result<Vec<Intent>> {
        let catalog = self.workspace.catalog();
        let path = catalog.any_path_of(self.checkout, facts.artifact)?;
        Ok(catalog.intents_on(&path, self.now())?)
    }

    /// Who means to work on it until when, a line each; none where nobody does.
    fn intents_attribute(&self, facts: &Facts) -> Result<Option<String>> {
        let line = |intent: &Intent| {
            format!("{} {} {}", intent.lease.holder, intent.lease.expires.to_rfc3339(), intent.pattern)
        };
        let lines: Vec<String> = self.intents(facts)?.iter().map(line).collect();
        Ok(Some(lines.join("\n")).filter(|text| !text.is_empty()))
    }

    fn live_lease(&self, facts: &Facts) -> Result<Option<Lease>> {
        Ok(self.workspace.catalog().covering_lease(self.checkout, facts.artifact, self.now())?)
    }

    fn artifact_attribute(&self, name: &str, facts: &Facts) -> Result<Option<String>> {
        Ok(match name {
            "user.artifact.draft" => Some(facts.draft.to_owned()),
            _ if facts.scratch => None,
            "user.artifact.id" => Some(facts.id.clone()),
            "user.artifact.version" => facts.base.filter(|_| facts.draft == "none").map(|v| v.to_string()),
            "user.artifact.base" => facts.base.map(|v| v.to_string()),
            "user.artifact.digest" => digest_attribute(facts),
            _ => None,
        })
    }

    /// Lists attributes, each name with a NUL byte behind it.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<u8>> {
        let node = self.node(ino)?;
        self.check_node_seen(&node)?;
        let facts = facts_of(&node);
        let mut names: Vec<&str> = Vec::new();
        let policy = self.workspace.policy().list_xattrs;
        if policy != ListXattrs::None && !facts.scratch && self.live_lease(&facts)?.is_some() {
            names.extend(["user.lease.holder", "user.lease.expires"]);
        }
        if policy == ListXattrs::All {
            let others = LEASE.iter().chain(&ARTIFACT).copied().filter(|name| !names.contains(name));
            let present: Vec<&str> =
                others.filter(|name| self.getxattr(ino, OsStr::new(name)).is_ok()).collect();
            names.extend(present);
        }
        Ok(names.iter().flat_map(|name| name.bytes().chain([0])).collect())
    }

    /// Refuses to set an attribute.
    pub fn setxattr(&self, _c: &Caller, ino: Ino, _name: &OsStr, _value: &[u8], _flags: i32) -> Result<()> {
        self.node(ino)?;
        Err(VfsError::AttributeRefused)
    }

    /// Refuses to remove an attribute that is there.
    pub fn removexattr(&self, _caller: &Caller, ino: Ino, _name: &OsStr) -> Result<()> {
        self.node(ino)?;
        Err(VfsError::AttributeRefused)
    }
}

fn facts_of(node: &Node) -> Facts {
    let state = node.lock();
    Facts {
        kind: state.kind,
        content: state.content.clone(),
        base: state.base,
        draft: draft_word(&state),
        artifact: state.artifact,
        id: state.id.to_string(),
        scratch: state.scratch != Scratch::No,
    }
}

/// `none`, `saved`, `dirty` or `added`.
fn draft_word(state: &State) -> &'static str {
    if state.is_dirty() {
        "dirty"
    } else if state.drafted && state.base.is_none() {
        "added"
    } else if state.drafted {
        "saved"
    } else {
        "none"
    }
}

/// The digest of the last save, once it is in the store.
fn digest_attribute(facts: &Facts) -> Option<String> {
    match &facts.content {
        Content::Blob(digest) => Some(format!("sha256:{digest}")),
        Content::None if facts.kind == Kind::File => Some(format!("sha256:{EMPTY_SHA256}")),
        _ => None,
    }
}
