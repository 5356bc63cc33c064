use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::error::chain;
use super::super::forms::{
    CheckInForm, Form, FormError, LeaseForm, PathForm, RevertForm, SettleForm, StatusForm, all, read_all,
};
use crate::engine::{CheckInRequest, CheckoutOps, EngineError};
use crate::model::{ArtifactPath, VersionNumber};

/// The longest request: a check-in of some 100,000 named paths.
pub const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;

/// What a client asks of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants are the functions of `CheckoutOps`, and their arguments")]
pub enum Request {
    Status {
        under: PathForm,
    },
    Checkout {
        paths: Vec<PathForm>,
    },
    CheckIn {
        paths: Vec<PathForm>,
        message: String,
        keep: bool,
        onto: Option<i64>,
    },
    Revert {
        paths: Vec<PathForm>,
    },
    SaveAs {
        path: PathForm,
        new: PathForm,
    },
    Settle {
        under: PathForm,
    },
    Add {
        path: PathForm,
    },
    Restore {
        path: PathForm,
        version: i64,
    },
    OpenBlobs,
    /// Take the mount away and end; the answer comes when the saves are flushed, or with `lazy` at once.
    Unmount {
        lazy: bool,
    },
}

/// What a daemon answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The result's JSON form.
    Ok(Value),
    /// Why not.
    Error(ErrorForm),
}

/// What sort of error it is; each has its exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Anything else.
    Failed,
    /// Somebody else holds the lease.
    Held,
    /// Somebody's lease ended, and he may still be writing.
    Quarantined,
    /// The lease of the draft was broken.
    Fenced,
    /// The draft was made on an older version.
    Stale,
    /// The draft's file was deleted from the head tree since.
    Deleted,
    /// There is no such path.
    NotFound,
}

/// An error on its way to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorForm {
    /// What sort of error it is.
    pub kind: Kind,
    /// The error and its sources, in one line.
    pub message: String,
    /// The object, where the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<PathForm>,
    /// The lease that refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseForm>,
    /// The version that a stale draft was made on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<i64>,
    /// The head version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<i64>,
}

impl ErrorForm {
    /// An error that only its message tells about.
    pub fn failed(message: String) -> Self {
        Self { kind: Kind::Failed, message, object: None, lease: None, base: None, head: None }
    }

    /// Writes an error of the engine.
    pub fn of(error: &EngineError) -> Self {
        let remedy = error.remedy().map_or_else(String::new, |remedy| format!("; {remedy}"));
        let form = Self::failed(format!("{}{remedy}", chain(error)));
        match error {
            EngineError::Held { path, lease } => Self {
                kind: Kind::Held,
                object: Some(PathForm::of(path)),
                lease: lease.as_deref().map(LeaseForm::of),
                ..form
            },
            EngineError::Quarantined { path, lease } => Self {
                kind: Kind::Quarantined,
                object: Some(PathForm::of(path)),
                lease: Some(LeaseForm::of(lease)),
                ..form
            },
            EngineError::Fenced { path } => {
                Self { kind: Kind::Fenced, object: Some(PathForm::of(path)), ..form }
            }
            EngineError::Stale { path, base, head } => Self {
                kind: Kind::Stale,
                object: Some(PathForm::of(path)),
                base: Some(base.0),
                head: Some(head.0),
                ..form
            },
            EngineError::DeletedMeanwhile { path, base } => {
                Self { kind: Kind::Deleted, object: Some(PathForm::of(path)), base: Some(base.0), ..form }
            }
            EngineError::NotFound(path) => {
                Self { kind: Kind::NotFound, object: Some(PathForm::of(path)), ..form }
            }
            _ => form,
        }
    }

    /// Reads the error; one that lacks what its kind needs is told by its message alone.
    pub fn read(self) -> EngineError {
        let object = self.object.and_then(|form| form.read().ok());
        let lease = self.lease.and_then(|form| form.read().ok()).map(Box::new);
        if let (Kind::Quarantined, Some(path), Some(lease)) = (self.kind, &object, &lease) {
            return EngineError::Quarantined { path: path.clone(), lease: lease.clone() };
        }
        match (self.kind, object, self.base, self.head) {
            (Kind::Held, Some(path), _, _) => EngineError::Held { path, lease },
            (Kind::Fenced, Some(path), _, _) => EngineError::Fenced { path },
            (Kind::Stale, Some(path), Some(base), Some(head)) => {
                EngineError::Stale { path, base: VersionNumber(base), head: VersionNumber(head) }
            }
            (Kind::Deleted, Some(path), Some(base), _) => {
                EngineError::DeletedMeanwhile { path, base: VersionNumber(base) }
            }
            (Kind::NotFound, Some(path), _, _) => EngineError::NotFound(path),
            _ => EngineError::Refused(self.message),
        }
    }
}

/// Answers a request from a checkout; unmounting is not the checkout's to do, and is refused.
pub fn answer(ops: &dyn CheckoutOps, request: Request) -> Response {
    match perform(ops, request) {
        Ok(value) => Response::Ok(value),
        Err(error) => Response::Error(*error),
    }
}

impl From<FormError> for Box<ErrorForm> {
    fn from(error: FormError) -> Self {
        Self::new(ErrorForm::failed(format!("bad request: {error}")))
    }
}

impl From<EngineError> for Box<ErrorForm> {
    fn from(error: EngineError) -> Self {
        Self::new(ErrorForm::of(&error))
    }
}

fn perform(ops: &dyn CheckoutOps, request: Request) -> Result<Value, Box<ErrorForm>> {
    match request {
        Request::Status { under } => value_of(&StatusForm::of(&ops.status(&under.read()?)?)),
        Request::Checkout { paths } => value_of(&all::<LeaseForm>(&ops.checkout(&read_all(paths)?)?)),
        Request::CheckIn { paths, message, keep, onto } => {
            let paths: Vec<ArtifactPath> = read_all(paths)?;
            let request =
                CheckInRequest { paths, message, keep, onto: onto.map(VersionNumber), busy: Vec::new() };
            value_of(&CheckInForm::of(&ops.check_in(&request)?))
        }
        Request::Revert { paths } => value_of(&RevertForm::of(&ops.revert(&read_all(paths)?)?)),
        Request::SaveAs { path, new } => value_of(&ops.save_as(&path.read()?, &new.read()?)?),
        Request::Settle { under } => value_of(&SettleForm::of(&ops.settle(&under.read()?)?)),
        Request::Add { path } => value_of(&ops.add(&path.read()?)?),
        Request::Restore { path, version } => value_of(&ops.restore(&path.read()?, VersionNumber(version))?),
        Request::OpenBlobs => {
            let open: Vec<String> = ops.open_blobs()?.iter().map(ToString::to_string).collect();
            value_of(&open)
        }
        Request::Unmount { .. } => Err(Box::new(ErrorForm::failed("a checkout can't unmount itself".into()))),
    }
}

fn value_of<T: Serialize>(value: &T) -> Result<Value, Box<ErrorForm>> {
    serde_json::to_value(value).map_err(|error| Box::new(ErrorForm::failed(error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Generation, Lease, ResourceKey, Timestamp};

    fn path(text: &str) -> ArtifactPath {
        ArtifactPath::parse(text).unwrap()
    }

    fn through_the_wire(error: &EngineError) -> EngineError {
        let json = serde_json::to_string(&Response::Error(ErrorForm::of(error))).unwrap();
        match serde_json::from_str(&json).unwrap() {
            Response::Error(form) => form.read(),
            Response::Ok(_) => panic!("BUG: an error became a result"),
        }
    }

    /// Exit statuses and refusals must be the same whether the checkout is mounted or not.
    #[test]
    fn errors_keep_kind_and_text() {
        let lease = Lease {
            key: ResourceKey::Free("thread:1".into()),
            holder: "bob@desk".parse().unwrap(),
            generation: Generation(1),
            expires_boot_ms: 5,
            boot: 2,
            expires: Timestamp(1_796_000_000_000_000_000),
            fenced: false,
        };
        for error in [
            EngineError::Held { path: path("a\nb"), lease: Some(Box::new(lease.clone())) },
            EngineError::Quarantined { path: path("a"), lease: Box::new(lease) },
            EngineError::Held { path: path("a"), lease: None },
            EngineError::Fenced { path: path("a") },
            EngineError::Stale { path: path("a"), base: VersionNumber(1), head: VersionNumber(3) },
            EngineError::DeletedMeanwhile { path: path("a"), base: VersionNumber(2) },
            EngineError::NotFound(path("a")),
            EngineError::Refused("no".into()),
        ] {
            let again = through_the_wire(&error);
            assert_eq!(std::mem::discriminant(&again), std::mem::discriminant(&error));
            assert_eq!(chain(&again), chain(&error));
        }
    }

    #[test]
    fn other_errors_arrive_with_their_sources() {
        let source = std::io::Error::from_raw_os_error(28);
        let error = EngineError::File { doing: "write", path: "/x".into(), source };
        assert_eq!(
            chain(&through_the_wire(&error)),
            "can't write /x: No space left on device (os error 28); make space on its filesystem"
        );
    }

    #[test]
    fn an_error_that_lacks_its_parts_is_still_an_error() {
        let form = ErrorForm { kind: Kind::Stale, ..ErrorForm::failed("odd".into()) };
        assert!(matches!(form.read(), EngineError::Refused(message) if message == "odd"));
    }
}
