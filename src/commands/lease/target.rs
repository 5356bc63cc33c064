use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::error::{CommandError, Result};
use super::Asked;
use crate::cli::{CheckoutOfArgs, LeaseHolderArgs};
use crate::engine::{Acquisition, LeaseError, Resource, Workspace};
use crate::model::{Holder, IntentPattern, RequestId, ResourceKey};

/// Resources as arguments name them, and who asks for them.
pub(super) struct Targets {
    pub workspace: Arc<Workspace>,
    /// Whose checkout the paths are of.
    pub checkout_of: Holder,
    /// Who asks.
    pub holder: Holder,
    pub resources: Vec<Resource>,
}

/// What paths among the arguments mean.
#[derive(Clone, Copy)]
enum Meaning {
    Artifacts,
    Taken,
    Intents,
}

fn intent(pattern: IntentPattern) -> Resource {
    Resource::Key(ResourceKey::Intent(pattern))
}

/// How an argument names a resource.
enum Named<'a> {
    Key(ResourceKey),
    /// A directory and all that lies below it.
    Subtree(PathBuf),
    Path(&'a Path),
}

impl Targets {
    /// Finds what arguments name, as all commands do.
    pub fn find(asked: &Asked<'_>, targets: &[PathBuf], who: &LeaseHolderArgs) -> Result<Self> {
        Self::find_as(Meaning::Artifacts, asked, targets, who)
    }

    /// As [`find`](Self::find), for what is to be taken: a path that may name another file than it seems to is refused.
    pub fn find_to_take(asked: &Asked<'_>, targets: &[PathBuf], who: &LeaseHolderArgs) -> Result<Self> {
        Self::find_as(Meaning::Taken, asked, targets, who)
    }

    /// As [`find_to_take`](Self::find_to_take), for what somebody means to work on: each path is an intent, whether it is
    /// there or not.
    pub fn find_intents(asked: &Asked<'_>, targets: &[PathBuf], who: &LeaseHolderArgs) -> Result<Self> {
        Self::find_as(Meaning::Intents, asked, targets, who)
    }

    fn find_as(
        meaning: Meaning,
        asked: &Asked<'_>,
        targets: &[PathBuf],
        who: &LeaseHolderArgs,
    ) -> Result<Self> {
        let named: Vec<Named<'_>> = targets.iter().map(|target| named(target)).collect();
        let paths: Vec<PathBuf> = named.iter().filter_map(Named::path).collect();
        let site = asked.context.site(&asked.args.workspace, &CheckoutOfArgs::default(), &paths)?;
        let mut found = site.paths.iter().cloned();
        let mut resources = Vec::with_capacity(named.len());
        for (one, target) in named.into_iter().zip(targets) {
            let (path, subtree) = match one {
                Named::Key(key) => {
                    resources.push(Resource::Key(key));
                    continue;
                }
                Named::Subtree(_) => (found.next(), true),
                Named::Path(_) => (found.next(), false),
            };
            let path = path.expect("BUG: each path was found");
            resources.push(match meaning {
                Meaning::Artifacts if subtree => intent(IntentPattern::subtree(path)),
                Meaning::Artifacts => Resource::Path(path),
                Meaning::Taken if !subtree => {
                    Resource::Path(site.admission_path(asked.context, target)?.path().clone())
                }
                Meaning::Taken | Meaning::Intents => intent(site.admission_path(asked.context, target)?),
            });
        }
        let holder = who.holder.as_deref().map(parse_holder).transpose()?;
        let holder = holder.unwrap_or_else(|| site.holder.clone());
        Ok(Self { workspace: site.workspace, checkout_of: site.holder, holder, resources })
    }

    /// The keys of the resources; each must be there.
    pub fn keys(&self) -> Result<Vec<ResourceKey>> {
        let key = |resource: &Resource| match resource {
            Resource::Key(key) => Ok(key.clone()),
            Resource::Path(path) => Ok(self.workspace.key_of(path, &self.checkout_of)?),
        };
        self.resources.iter().map(key).collect()
    }

    /// The key of the only resource.
    pub fn key(&self) -> Result<ResourceKey> {
        Ok(self.keys()?.into_iter().next().expect("BUG: the argument is required"))
    }

    /// The request for all of them.
    pub fn acquisition(&self, ttl_ms: Option<i64>, request_id: Option<&str>) -> Result<Acquisition> {
        Ok(Acquisition {
            id: request_id.map(parse_request_id).transpose()?,
            checkout_of: self.checkout_of.clone(),
            ttl_ms,
            ..Acquisition::of(&self.holder, self.resources.clone())
        })
    }
}

impl Named<'_> {
    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Key(_) => None,
            Self::Subtree(path) => Some(path.clone()),
            Self::Path(path) => Some((*path).to_owned()),
        }
    }
}

/// Reads `kind:id`, a directory with `/**` behind it, or a path; a file of such a name is written `./kind:id`.
fn named(target: &Path) -> Named<'_> {
    let bytes = target.as_os_str().as_bytes();
    if let Some(key) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()) {
        return Named::Key(key);
    }
    match bytes {
        b"**" => Named::Subtree(".".into()),
        b"/**" => Named::Subtree("/".into()),
        _ => match bytes.strip_suffix(b"/**") {
            Some(dir) => Named::Subtree(OsStr::from_bytes(dir).into()),
            None => Named::Path(target),
        },
    }
}

/// Reads who asks.
pub(super) fn parse_holder(text: &str) -> Result<Holder> {
    text.parse().map_err(|source| CommandError::BadHolder {
        what: "a holder",
        option: "--as",
        text: text.to_owned(),
        source,
    })
}

fn parse_request_id(text: &str) -> Result<RequestId> {
    text.parse().map_err(|source| CommandError::BadHolder {
        what: "the id of a request",
        option: "--request-id",
        text: text.to_owned(),
        source,
    })
}

/// The key of a task's name.
pub(super) fn task_key(name: &str) -> Result<ResourceKey> {
    let key = format!("task:{name}").parse();
    Ok(key.map_err(|_| LeaseError::ValidationFailed(format!("{name:?} can't be the name of a task")))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_intents_and_paths_are_told_apart_by_their_spelling() {
        let kind = |text: &str| match named(Path::new(text)) {
            Named::Key(key) => format!("key {key}"),
            Named::Subtree(path) => format!("subtree {}", path.display()),
            Named::Path(path) => format!("path {}", path.display()),
        };
        for key in
            ["thread:42", "artifact:01890a5d-ac96-774b-bcce-b302099a8057", "host:port:3000", "intent:a/**"]
        {
            assert_eq!(kind(key), format!("key {key}"));
        }
        for path in
            ["./thread:42", "a/b:c", "Report:final.docx", "plain", "artifact:x", ":x", "x:", "a/*", "a**"]
        {
            assert_eq!(kind(path), format!("path {path}"));
        }
        assert_eq!(kind("src/auth/**"), "subtree src/auth");
        assert_eq!(kind("**"), "subtree .");
        assert_eq!(kind("./a:b/**"), "subtree ./a:b");
    }
}
