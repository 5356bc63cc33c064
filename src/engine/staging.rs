//! The names of files that are not in the store: they tell whose bytes a crash left there.

use std::fmt;
use std::str::FromStr;

use crate::model::{CheckoutId, Seq, VersionNumber};

/// What a file of `staging/` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StagingRole {
    /// `w`: an application may be writing to it.
    Working,
    /// `s`: a whole save that waits to become a blob; nobody writes to it any more.
    Sealed,
    /// `c`: a copy of bytes that are elsewhere, too: worthless after a crash.
    Copy,
}

/// The name of a file of `staging/`: `<role>.<checkout>.<artifact>.<base version, or 0>.<token>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StagingName {
    /// What it is for.
    pub role: StagingRole,
    /// Whose bytes it holds.
    pub checkout: CheckoutId,
    /// To which artifact they were written.
    pub artifact: Seq,
    /// The version on which they were made.
    pub base: Option<VersionNumber>,
    /// Makes the name unique.
    pub token: String,
}

/// The name of a file of `scratch/`: `<checkout>.<artifact>.<token>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScratchName {
    /// Whose bytes it holds.
    pub checkout: CheckoutId,
    /// To which artifact they were written.
    pub artifact: Seq,
    /// Makes the name unique.
    pub token: String,
}

/// The name isn't one of a working file, a sealed save or a scratch file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a staging file")]
pub struct ParseStagingError;

impl StagingName {
    /// A name for bytes that belong to no checkout: a manifest in the making.
    pub(super) fn of_nobody(token: String) -> Self {
        Self { role: StagingRole::Copy, checkout: CheckoutId(0), artifact: Seq::ROOT, base: None, token }
    }

    /// Whether the bytes belong to no checkout.
    pub(super) fn is_of_nobody(&self) -> bool {
        self.checkout == CheckoutId(0)
    }

    /// The name of the same bytes once they are sealed.
    pub fn sealed(&self) -> Self {
        Self { role: StagingRole::Sealed, ..self.clone() }
    }
}

impl fmt::Display for StagingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            StagingRole::Working => 'w',
            StagingRole::Sealed => 's',
            StagingRole::Copy => 'c',
        };
        let base = self.base.map_or(0, |base| base.0);
        write!(f, "{role}.{}.{}.{base}.{}", self.checkout, self.artifact, self.token)
    }
}

impl FromStr for StagingName {
    type Err = ParseStagingError;

    fn from_str(text: &str) -> Result<Self, ParseStagingError> {
        let fields: Vec<&str> = text.split('.').collect();
        let [role, checkout, artifact, base, token] = fields[..] else { return Err(ParseStagingError) };
        let role = match role {
            "w" => StagingRole::Working,
            "s" => StagingRole::Sealed,
            "c" => StagingRole::Copy,
            _ => return Err(ParseStagingError),
        };
        let base = number(base)?;
        Ok(Self {
            role,
            checkout: CheckoutId(number(checkout)?),
            artifact: Seq(number(artifact)?),
            base: (base > 0).then_some(VersionNumber(base)),
            token: token.to_owned(),
        })
    }
}

impl fmt::Display for ScratchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.checkout, self.artifact, self.token)
    }
}

impl FromStr for ScratchName {
    type Err = ParseStagingError;

    fn from_str(text: &str) -> Result<Self, ParseStagingError> {
        let fields: Vec<&str> = text.split('.').collect();
        let [checkout, artifact, token] = fields[..] else { return Err(ParseStagingError) };
        Ok(Self {
            checkout: CheckoutId(number(checkout)?),
            artifact: Seq(number(artifact)?),
            token: token.to_owned(),
        })
    }
}

fn number(text: &str) -> Result<i64, ParseStagingError> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or(ParseStagingError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_staging_files_tell_whose_bytes_they_hold() {
        let working = StagingName {
            role: StagingRole::Working,
            checkout: CheckoutId(3),
            artifact: Seq(17),
            base: Some(VersionNumber(2)),
            token: "0af".into(),
        };
        assert_eq!(working.to_string(), "w.3.17.2.0af");
        assert_eq!("w.3.17.2.0af".parse(), Ok(working.clone()));
        assert_eq!("s.3.17.0.0af".parse(), Ok(StagingName { base: None, ..working.sealed() }));
        for other in ["", "w", "put-0af", "w.3.17.2", "x.3.17.2.t", "w.-3.17.2.t", "w.3.17.2.t.u", "w..1.2.t"]
        {
            assert_eq!(other.parse::<StagingName>(), Err(ParseStagingError), "{other}");
        }
        let scratch = ScratchName { checkout: CheckoutId(3), artifact: Seq(17), token: "0af".into() };
        assert_eq!("3.17.0af".parse(), Ok(scratch.clone()));
        assert_eq!(scratch.to_string(), "3.17.0af");
    }
}
