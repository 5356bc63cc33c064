//! Who may see and change what: roles by path, as pure rules.
//!
//! A path that no restriction covers may be read and written by everybody. One that a restriction covers exists only
//! for principals with a grant that covers it, too. A glob covers what it matches and all that lies below; `dir/**`
//! covers `dir` itself as well, so that no entry of a hidden directory shows. Grants only ever add rights.

use std::fmt;
use std::str::FromStr;

use super::{ArtifactPath, GlobError, PathGlobs};

/// The longest name of a principal, in bytes; Linux's user names are far shorter (useradd(8)).
const MAX_PRINCIPAL_BYTES: usize = 127;

/// The characters that mean something in a glob.
const GLOB_CHARACTERS: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// Who is judged by access rules: the name of a user of the operating system, or `*` for everybody.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(String);

/// The text can't name a principal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} can't be a principal: write a user's name of 1 to {MAX_PRINCIPAL_BYTES} bytes without `/`, `@` and control characters, or `*`"
)]
pub struct ParsePrincipalError(String);

impl Principal {
    /// Everybody.
    pub const EVERYBODY: &'static str = "*";

    /// The text of the principal.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it stands for everybody.
    pub fn is_everybody(&self) -> bool {
        self.0 == Self::EVERYBODY
    }
}

impl FromStr for Principal {
    type Err = ParsePrincipalError;

    fn from_str(text: &str) -> Result<Self, ParsePrincipalError> {
        let forbidden = |c: char| c.is_control() || matches!(c, '/' | '@');
        if text.is_empty() || text.len() > MAX_PRINCIPAL_BYTES || text.contains(forbidden) {
            return Err(ParsePrincipalError(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a principal may do with what a grant covers; each may do what the one before may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// See and read it.
    Viewer,
    /// Write it, check it in, take and release its leases.
    Editor,
    /// Break its leases, grant roles, restrict it.
    Owner,
}

/// The text is no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no role: write viewer, editor or owner")]
pub struct ParseRoleError(String);

impl Role {
    /// The name by which it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Editor => "editor",
            Self::Owner => "owner",
        }
    }
}

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        let role = [Self::Viewer, Self::Editor, Self::Owner].into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| ParseRoleError(text.to_owned()))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which paths a rule covers: those that a path glob matches, with all that lies below them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessGlob {
    text: String,
    globs: PathGlobs,
}

impl AccessGlob {
    /// The glob that covers everything, the root directory included.
    pub const ALL: &'static str = "**";

    /// Reads a glob as [`PathGlobs`] does; one that could match no path is refused, for it would protect nothing.
    pub fn new(text: &str) -> Result<Self, GlobError> {
        let (prefix, body) = split_prefix(text);
        let inner = body.strip_prefix('/').unwrap_or(body);
        if text.contains(char::is_control) || inner.split('/').any(|name| matches!(name, "" | "." | "..")) {
            return Err(GlobError::NeverMatches { glob: text.to_owned() });
        }
        let mut globs = vec![text.to_owned()];
        if let Some(dir) = inner.strip_suffix("/**") {
            globs.push(format!("{prefix}/{dir}"));
        }
        Ok(Self { globs: PathGlobs::new(&globs)?, text: text.to_owned() })
    }

    /// The glob as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it covers everything.
    pub fn is_all(&self) -> bool {
        matches!(self.text.as_str(), "**" | "/**")
    }

    /// Whether it covers a path: it matches the path or a directory above.
    pub fn covers(&self, path: &ArtifactPath) -> bool {
        self.is_all() || prefixes(path).any(|prefix| self.globs.is_match(&prefix))
    }

    /// Whether all that it can cover is covered by `other`, as far as their texts tell: the same text, or one that
    /// begins with the names of the directory that `other` spells out.
    pub fn is_within(&self, other: &Self) -> bool {
        let (prefix, body) = split_prefix(&self.text);
        let Some(dir) = other.literal_dir() else { return self.text == other.text };
        // A glob without a `/` matches in every directory.
        let names = body.strip_prefix('/').unwrap_or(body);
        let is_anchored = prefix.is_empty() && body.contains('/');
        dir.is_empty() || is_anchored && names.split('/').take(dir.len()).eq(dir.iter().copied())
    }

    /// The names of the directory that the glob stands for, where it says them one by one; none at all for everything.
    fn literal_dir(&self) -> Option<Vec<&str>> {
        if self.is_all() {
            return Some(Vec::new());
        }
        let (prefix, body) = split_prefix(&self.text);
        let dir = body.strip_suffix("/**").unwrap_or(body);
        let is_literal = prefix.is_empty() && body.contains('/') && !dir.contains(GLOB_CHARACTERS);
        is_literal.then(|| dir.strip_prefix('/').unwrap_or(dir).split('/').collect())
    }
}

impl fmt::Display for AccessGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The mark of "any case", and the rest.
fn split_prefix(text: &str) -> (&str, &str) {
    text.strip_prefix("(?i)").map_or(("", text), |body| ("(?i)", body))
}

/// The directories above a path, from the top, and the path itself; none for the root.
fn prefixes(path: &ArtifactPath) -> impl Iterator<Item = ArtifactPath> + '_ {
    (1..=path.names().len()).map(|length| ArtifactPath::from_names(path.names()[..length].to_vec()))
}

/// A role that a principal has where the glob covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who.
    pub principal: Principal,
    /// What he may do.
    pub role: Role,
    /// Where.
    pub glob: AccessGlob,
}

/// The access rules of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessRules {
    /// Who may do more than everybody.
    pub grants: Vec<Grant>,
    /// What not everybody may see.
    pub restrictions: Vec<AccessGlob>,
}

impl AccessRules {
    /// Whether somebody owns everything.
    pub fn has_owner(&self) -> bool {
        self.grants.iter().any(|grant| grant.role == Role::Owner && grant.glob.is_all())
    }

    /// What one principal may do.
    pub fn rights_of(&self, principal: &Principal) -> Rights {
        let is_his = |grant: &&Grant| grant.principal == *principal || grant.principal.is_everybody();
        Rights {
            unlimited: false,
            grants: self.grants.iter().filter(is_his).map(|g| (g.role, g.glob.clone())).collect(),
            restrictions: self.restrictions.clone(),
        }
    }
}

/// Who asks, as far as rules need to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who.
    pub principal: Principal,
    /// Whether no rule limits him, as the system's own files don't limit root.
    pub superuser: bool,
    /// Whether the workspace's files are his: then he owns everything as long as nobody else does.
    pub owns_files: bool,
}

impl Identity {
    /// The system's root.
    pub fn root() -> Self {
        Self { principal: Principal("root".to_owned()), superuser: true, owns_files: true }
    }

    /// What the rules let him do.
    pub fn rights(&self, rules: &AccessRules) -> Rights {
        if self.superuser || self.owns_files && !rules.has_owner() {
            return Rights::unlimited();
        }
        rules.rights_of(&self.principal)
    }
}

/// What one principal may do with which paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    unlimited: bool,
    grants: Vec<(Role, AccessGlob)>,
    restrictions: Vec<AccessGlob>,
}

impl Rights {
    /// The rights of one whom no rule limits.
    pub fn unlimited() -> Self {
        Self { unlimited: true, grants: Vec::new(), restrictions: Vec::new() }
    }

    /// Whether every path may be read and written, so that none need be looked at.
    pub fn is_free(&self) -> bool {
        let edits_all = |(role, glob): &(Role, AccessGlob)| *role >= Role::Editor && glob.is_all();
        self.unlimited || self.restrictions.is_empty() || self.grants.iter().any(edits_all)
    }

    /// The role at a path; none where it doesn't exist for the principal. The root directory always exists.
    pub fn role(&self, path: &ArtifactPath) -> Option<Role> {
        if self.unlimited {
            return Some(Role::Owner);
        }
        let (mut granted, mut restricted) = (None, false);
        for (role, glob) in &self.grants {
            granted = granted.max(glob.is_all().then_some(*role));
        }
        restricted |= self.restrictions.iter().any(AccessGlob::is_all);
        for prefix in prefixes(path) {
            for (role, glob) in &self.grants {
                granted = granted.max(glob.globs.is_match(&prefix).then_some(*role));
            }
            restricted = restricted || self.restrictions.iter().any(|glob| glob.globs.is_match(&prefix));
            if restricted && granted.is_none() {
                return None;
            }
        }
        let default = if restricted { Role::Viewer } else { Role::Editor };
        granted.max((path.is_root() || !restricted).then_some(default))
    }

    /// The role with something that is, or was, at several places: the least of them.
    pub fn role_at<'a>(&self, places: impl IntoIterator<Item = &'a ArtifactPath>) -> Option<Role> {
        places.into_iter().map(|path| self.role(path)).min().unwrap_or(Some(Role::Owner))
    }

    /// Whether the principal owns all that a glob can cover.
    pub fn owns(&self, glob: &AccessGlob) -> bool {
        let covers = |(role, own): &(Role, AccessGlob)| *role == Role::Owner && glob.is_within(own);
        self.unlimited || self.grants.iter().any(covers)
    }

    /// Whether the principal owns everything.
    pub fn owns_all(&self) -> bool {
        self.unlimited || self.grants.iter().any(|(role, glob)| *role == Role::Owner && glob.is_all())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> ArtifactPath {
        ArtifactPath::parse(text).unwrap()
    }

    fn glob(text: &str) -> AccessGlob {
        AccessGlob::new(text).unwrap()
    }

    fn grant(principal: &str, role: Role, on: &str) -> Grant {
        Grant { principal: principal.parse().unwrap(), role, glob: glob(on) }
    }

    fn rules(grants: &[(&str, Role, &str)], restrictions: &[&str]) -> AccessRules {
        AccessRules {
            grants: grants.iter().map(|(who, role, on)| grant(who, *role, on)).collect(),
            restrictions: restrictions.iter().map(|on| glob(on)).collect(),
        }
    }

    /// What a rule covers: by components, with the directory that a trailing `/**` names, and all below.
    #[test]
    fn a_glob_covers_what_it_matches_and_all_below() {
        let table = [
            ("secret/**", "secret secret/a secret/a/b", "secrets x/secret ."),
            ("/secret", "secret secret/a/b", "x/secret secret.txt ."),
            ("secret", "secret x/secret x/secret/y", "secrets ."),
            ("*.key", "a.key x/a.key x/a.key/y", "a.keys ."),
            ("a/*/c", "a/b/c a/b/c/d", "a/b a/b/x/c"),
            ("(?i)HR/**", "hr HR/x Hr/y/z", "hrs"),
            ("**", ". a a/b", ""),
        ];
        for (text, covered, free) in table {
            for one in covered.split_whitespace() {
                assert!(glob(text).covers(&path(one)), "{text} covers {one}");
            }
            for one in free.split_whitespace() {
                assert!(!glob(text).covers(&path(one)), "{text} does not cover {one}");
            }
        }
    }

    /// A rule that protects nothing by a slip must not be taken.
    #[test]
    fn globs_that_match_nothing_are_refused() {
        for text in ["", "/", "a/", "./a", "a/../b", "a//b", "..", "a\nb", "[a"] {
            assert!(AccessGlob::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn roles_follow_from_grants_and_restrictions() {
        use Role::{Editor, Owner, Viewer};
        let rules = rules(
            &[
                ("root", Owner, "**"),
                ("ada", Owner, "media/**"),
                ("ada", Viewer, "hr/**"),
                ("bob", Editor, "hr/bob"),
                ("eve", Editor, "hr"),
                ("*", Viewer, "specs"),
                ("ada", Viewer, "free"),
            ],
            &["hr/**", "specs", "*.key"],
        );
        type Expected = &'static [(&'static str, Option<Role>)];
        let table: [(&str, Expected); 4] = [
            ("root", &[("hr/x", Some(Owner)), ("a.key", Some(Owner)), (".", Some(Owner))]),
            (
                "ada",
                &[
                    ("x", Some(Editor)),
                    ("free", Some(Editor)),
                    ("media/x", Some(Owner)),
                    ("media/x.key", Some(Owner)),
                    ("hr", Some(Viewer)),
                    ("hr/x.key", Some(Viewer)),
                    ("x.key", None),
                    ("specs/a", Some(Viewer)),
                ],
            ),
            // A grant within a hidden directory leads nowhere: nobody can come to it.
            ("bob", &[("hr", None), ("hr/bob", None), ("hrx", Some(Editor)), (".", Some(Editor))]),
            ("eve", &[("hr", Some(Editor)), ("hr/x", Some(Editor))]),
        ];
        for (who, expected) in table {
            let rights = rules.rights_of(&who.parse().unwrap());
            for (at, role) in expected {
                assert_eq!(rights.role(&path(at)), *role, "{who} at {at}");
            }
        }
    }

    /// With everything restricted the root directory is still there, to be read.
    #[test]
    fn the_root_is_always_there() {
        let rules = rules(&[("ada", Role::Editor, "**")], &["**"]);
        let role = |who: &str, at: &str| rules.rights_of(&who.parse().unwrap()).role(&path(at));
        assert_eq!((role("bob", "."), role("bob", "x")), (Some(Role::Viewer), None));
        assert_eq!((role("ada", "."), role("ada", "x")), (Some(Role::Editor), Some(Role::Editor)));
    }

    #[test]
    fn an_owner_rules_over_what_his_glob_spells_out() {
        let table = [
            ("media/x", "media/**", true),
            ("/media/*.psd", "media/**", true),
            ("media/**", "/media", true),
            ("media", "/media", false),
            ("mediax/a", "media/**", false),
            ("*.psd", "media/**", false),
            ("(?i)media/x", "media/**", false),
            ("{media,x}/a", "media/**", false),
            ("anything/**", "**", true),
            ("*.psd", "*.psd", true),
            ("a/*.psd", "*.psd", false),
        ];
        for (inner, outer, within) in table {
            assert_eq!(glob(inner).is_within(&glob(outer)), within, "{inner} within {outer}");
            let rights = rules(&[("ada", Role::Owner, outer)], &[]).rights_of(&"ada".parse().unwrap());
            assert_eq!(rights.owns(&glob(inner)), within);
        }
        let editor = rules(&[("ada", Role::Editor, "**")], &[]).rights_of(&"ada".parse().unwrap());
        assert!(!editor.owns(&glob("media/x")) && editor.is_free());
    }

    #[test]
    fn principals_and_roles_are_read_as_they_are_written() {
        for good in ["ada", "*", "ada lovelace", "uid1000", "é"] {
            assert_eq!(good.parse::<Principal>().unwrap().as_str(), good);
        }
        for bad in ["", "a@b", "a/b", "a\nb", &"x".repeat(128)] {
            assert!(bad.parse::<Principal>().is_err(), "{bad:?}");
        }
        for role in [Role::Viewer, Role::Editor, Role::Owner] {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!("boss".parse::<Role>().is_err());
    }

    fn any_glob() -> impl Strategy<Value = String> {
        let name = prop_oneof![Just("a"), Just("b"), Just("*"), Just("a*")];
        let names = proptest::collection::vec(name, 1..4);
        (names, any::<bool>(), any::<bool>()).prop_map(|(names, anchored, below)| {
            let (start, end) = (if anchored { "/" } else { "" }, if below { "/**" } else { "" });
            format!("{start}{}{end}", names.join("/"))
        })
    }

    fn any_path() -> impl Strategy<Value = String> {
        proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("ab")], 1..5)
            .prop_map(|names| names.join("/"))
    }

    fn any_rules() -> impl Strategy<Value = AccessRules> {
        let role = prop_oneof![Just(Role::Viewer), Just(Role::Editor), Just(Role::Owner)];
        let who = prop_oneof![Just("ada"), Just("bob"), Just("*")];
        let grants = proptest::collection::vec((who, role, any_glob()), 0..4);
        (grants, proptest::collection::vec(any_glob(), 0..4)).prop_map(|(grants, restrictions)| AccessRules {
            grants: grants.iter().map(|(who, role, on)| grant(who, *role, on)).collect(),
            restrictions: restrictions.iter().map(|on| glob(on)).collect(),
        })
    }

    proptest! {
        /// Nothing shows below what is hidden, a grant takes nothing away, and a restriction gives nothing.
        #[test]
        fn rules_are_monotone(rules in any_rules(), at in any_path(), more in any_glob(), limit in any_glob()) {
            let (ada, at) = ("ada".parse().unwrap(), path(&at));
            let role = rules.rights_of(&ada).role(&at);
            if let Some(above) = at.parent() {
                prop_assert!(role.is_none() || rules.rights_of(&ada).role(&above).is_some());
            }
            let mut granted = rules.clone();
            granted.grants.push(grant("ada", Role::Viewer, &more));
            prop_assert!(granted.rights_of(&ada).role(&at) >= role);
            let mut limited = rules.clone();
            limited.restrictions.push(glob(&limit));
            prop_assert!(limited.rights_of(&ada).role(&at) <= role);
        }

        /// Who is unlimited in practice is never looked at twice, and the others' grants don't count.
        #[test]
        fn free_rights_need_no_look(rules in any_rules(), at in any_path()) {
            let rights = rules.rights_of(&"ada".parse().unwrap());
            prop_assert!(!rights.is_free() || rights.role(&path(&at)) >= Some(Role::Editor));
            let mut others = rules.clone();
            others.grants.push(grant("bob", Role::Owner, "**"));
            prop_assert_eq!(others.rights_of(&"ada".parse().unwrap()), rights);
        }

        /// What is within another glob by its text is covered by it wherever it is.
        #[test]
        fn texts_within_cover_within(inner in any_glob(), outer in any_glob(), at in any_path()) {
            let (inner, outer, at) = (glob(&inner), glob(&outer), path(&at));
            prop_assert!(!inner.is_within(&outer) || !inner.covers(&at) || outer.covers(&at));
        }
    }
}
