use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::error::{CommandError, Result, one_line};
use super::super::remote::Remote;
use super::paths::{in_mount, in_workspace, locate, unreadable};
use super::{Mount, MountTable, VersionSpec, split_version};
use crate::cli::{CheckoutOfArgs, WorkspaceArgs};
use crate::engine::{AdmissionPaths, CheckoutOps, EngineError, Environment, SystemDisk, Workspace};
use crate::model::{ArtifactPath, Holder, HolderPart, HolderPartError, IntentPattern, ParseHolderError};
use crate::sys;

/// The extended attribute of a mount's root that names the holder of its checkout.
const HOLDER_XATTR: &str = "user.leasehold.holder";

/// What a command is given from around it.
pub struct Context {
    /// Clock and identities.
    pub environment: Environment,
    /// The working directory.
    pub cwd: PathBuf,
    /// `LEASEHOLD_WORKSPACE`, if it is set and not empty.
    pub workspace: Option<PathBuf>,
    /// `LEASEHOLD_CHECKOUT`, if it is set and not empty.
    pub checkout: Option<OsString>,
    /// `LEASEHOLD_PRINCIPAL`, if it is set and not empty: who is judged by the access rules instead of this user.
    pub principal: Option<OsString>,
    /// The mounts of this namespace.
    pub mounts: MountTable,
    /// The command only looks: a policy that can't be used keeps nobody from that.
    pub only_looks: bool,
}

impl Context {
    /// Reads working directory, environment variables and mount table.
    pub fn new(environment: Environment) -> Result<Self> {
        let here =
            |source| CommandError::File { doing: "find the working directory", path: ".".into(), source };
        let table =
            |source| CommandError::File { doing: "read", path: "/proc/self/mountinfo".into(), source };
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Ok(Self {
            environment,
            cwd: std::env::current_dir().map_err(here)?,
            workspace: variable("LEASEHOLD_WORKSPACE").map(PathBuf::from),
            checkout: variable("LEASEHOLD_CHECKOUT"),
            principal: variable("LEASEHOLD_PRINCIPAL"),
            mounts: MountTable::read().map_err(table)?,
            only_looks: false,
        })
    }

    /// The holder that a user and a checkout name come to, each with its default.
    pub fn holder(&self, user: Option<&str>, checkout: Option<&str>) -> Result<Holder> {
        let (user, checkout) = self.user_and_checkout(user, checkout)?;
        Holder::of(&user, &checkout).map_err(|HolderPartError { part, source }| match part {
            HolderPart::User => bad_holder("the name of a user", "--as", user, source),
            HolderPart::Checkout => bad_checkout(checkout, source),
        })
    }

    /// A user and a checkout name, each with its default.
    pub fn user_and_checkout(&self, user: Option<&str>, checkout: Option<&str>) -> Result<(String, String)> {
        let user = user.map_or_else(login_name, str::to_owned);
        Ok((user, self.checkout_name(checkout)?))
    }

    fn checkout_name(&self, given: Option<&str>) -> Result<String> {
        match (given, &self.checkout) {
            (Some(name), _) => Ok(name.to_owned()),
            (None, Some(name)) => name
                .clone()
                .into_string()
                .map_err(|name| bad_checkout(name.to_string_lossy().into_owned(), ParseHolderError::NotText)),
            (None, None) => sys::host_name().map_err(|source| {
                let path = "/proc/sys/kernel/hostname".into();
                CommandError::File { doing: "read", path, source }
            }),
        }
    }

    /// Opens the workspace alone.
    pub fn workspace(&self, args: &WorkspaceArgs) -> Result<Workspace> {
        let located = self.locate_all(&[], None)?;
        match (&args.workspace, located.into_iter().find_map(|one| one.mount)) {
            (Some(path), _) => self.open(path),
            (None, Some(mount)) => self.open(&mount.source),
            (None, None) => self.default_workspace(),
        }
    }

    /// Opens the workspace and the checkout that a command's arguments mean.
    pub fn site(&self, workspace: &WorkspaceArgs, of: &CheckoutOfArgs, paths: &[PathBuf]) -> Result<Site> {
        let asked = workspace.workspace.as_deref().map(|path| self.open(path)).transpose()?;
        let located = self.locate_all(paths, asked.as_ref())?;
        let mount = located.first().and_then(|first| first.mount.clone());
        let workspace = match (asked, &mount) {
            (Some(workspace), _) => workspace,
            (None, Some(mount)) => self.open(&mount.source)?,
            (None, None) => self.default_workspace()?,
        };
        let explicit = of.user.is_some() || of.checkout.is_some();
        let holder = match &mount {
            Some(mount) if !explicit => holder_of_mount(&self.mounts, mount)?,
            _ => self.holder(of.user.as_deref(), of.checkout.as_deref())?,
        };
        let artifacts = paths.iter().zip(&located).map(|(path, at)| at.artifact(path, workspace.root()));
        let artifacts = artifacts.collect::<Result<Vec<_>>>()?;
        Ok(Site { workspace: Arc::new(workspace), holder, located, paths: artifacts })
    }

    /// Finds where the arguments are, or without any the working directory; all must be in one checkout.
    fn locate_all(&self, paths: &[PathBuf], asked: Option<&Workspace>) -> Result<Vec<Located>> {
        let here = [PathBuf::from(".")];
        let arguments = if paths.is_empty() { &here } else { paths };
        let fits = |mount: &&Mount| asked.is_none_or(|workspace| workspace.root() == mount.source);
        let locate_one = |argument: &PathBuf| {
            let path = locate(&self.mounts, &self.cwd, argument)?;
            let mount = self.mounts.leasehold_at(&path).filter(fits).cloned();
            Ok(Located { path, mount })
        };
        let located = arguments.iter().map(locate_one).collect::<Result<Vec<_>>>()?;
        match located.iter().position(|one| one.device() != located[0].device()) {
            Some(odd) => {
                Err(CommandError::TwoCheckouts { path: arguments[odd].clone(), other: arguments[0].clone() })
            }
            None => Ok(located),
        }
    }

    fn default_workspace(&self) -> Result<Workspace> {
        if let Some(path) = &self.workspace {
            return self.open(path);
        }
        let parent = self.cwd.ancestors().find(|dir| dir.join(".leasehold").is_dir());
        self.open(parent.ok_or_else(|| CommandError::NoWorkspace(self.cwd.clone()))?)
    }

    /// Opens the workspace at a path.
    pub fn open(&self, path: &Path) -> Result<Workspace> {
        let absolute = self.cwd.join(path);
        let root = match std::fs::canonicalize(&absolute) {
            Ok(root) => root,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(EngineError::NotAWorkspace(absolute).into());
            }
            Err(source) => return Err(CommandError::File { doing: "open", path: absolute, source }),
        };
        if !self.only_looks {
            return self.judged(Workspace::open(&root, &self.environment)?);
        }
        let workspace = Workspace::open_to_look(&root, &self.environment)?;
        if let Some(fault) = workspace.policy_fault() {
            let warning = one_line(&format!("{fault}; goes on, as this changes nothing"));
            // Where standard error is gone there is nobody to warn.
            let _ = writeln!(std::io::stderr(), "leasehold: warning: {warning}");
        }
        self.judged(workspace)
    }

    /// Lets a workspace judge by the principal that the environment names, if it does.
    pub fn judged(&self, workspace: Workspace) -> Result<Workspace> {
        let Some(principal) = &self.principal else { return Ok(workspace) };
        // What is no UTF-8 is no user's name, and is refused as such.
        Ok(workspace.acting_as(&principal.to_string_lossy())?)
    }
}

fn bad_checkout(text: String, source: ParseHolderError) -> CommandError {
    bad_holder("the name of a checkout", "--checkout", text, source)
}

fn bad_holder(
    what: &'static str,
    option: &'static str,
    text: String,
    source: ParseHolderError,
) -> CommandError {
    CommandError::BadHolder { what, option, text, source }
}

fn login_name() -> String {
    sys::user_name().unwrap_or_else(|| format!("uid{}", sys::effective_ids().0))
}

/// The holder of the checkout that a mount shows, as the mount itself tells.
pub fn holder_of_mount(mounts: &MountTable, mount: &Mount) -> Result<Holder> {
    let mountpoint = &mounts.original(mount).mountpoint;
    let value = sys::xattr(mountpoint, HOLDER_XATTR).map_err(|source| match source.kind() {
        std::io::ErrorKind::PermissionDenied => CommandError::ForeignMount(mountpoint.clone()),
        _ => unreadable(mountpoint, source),
    })?;
    let text = value.and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| CommandError::NotAMount(mountpoint.clone()))?;
    text.parse().map_err(|source| bad_holder("a holder", "--as", text, source))
}

/// An argument's place.
#[derive(Debug)]
struct Located {
    /// Without symlinks before the last component.
    path: PathBuf,
    /// The mount of ours that it is in.
    mount: Option<Mount>,
}

impl Located {
    fn device(&self) -> Option<&str> {
        self.mount.as_ref().map(|mount| mount.device.as_str())
    }

    fn artifact(&self, argument: &Path, root: &Path) -> Result<ArtifactPath> {
        match &self.mount {
            Some(mount) => in_mount(mount, &self.path),
            None => in_workspace(root, argument),
        }
    }
}

/// The workspace and the checkout that a command works on.
pub struct Site {
    /// The workspace.
    pub workspace: Arc<Workspace>,
    /// The holder of the checkout's leases.
    pub holder: Holder,
    /// The artifacts that the command's paths name, in their order.
    pub paths: Vec<ArtifactPath>,
    located: Vec<Located>,
}

impl Site {
    /// The checkout: by way of its daemon if it is mounted, else on the catalog alone.
    pub fn ops(&self) -> Result<Box<dyn CheckoutOps>> {
        match self.workspace.live_mount(&self.holder)? {
            Some(mount) => Ok(Box::new(Remote::of(&self.workspace, &self.holder, mount)?)),
            None => Ok(Box::new(self.workspace.detached(&self.holder, None)?)),
        }
    }

    /// What paths mean when leases are taken on them: each file has one, and what can't be told is refused.
    pub fn admission_path(&self, context: &Context, path: &Path) -> Result<IntentPattern> {
        let text = path.as_os_str();
        let mount = self.located.iter().find_map(|located| located.mount.as_ref());
        let resolved = match mount {
            Some(mount) => {
                AdmissionPaths::in_mount(&context.mounts, &SystemDisk, mount).resolve(&context.cwd, text)
            }
            None => AdmissionPaths::in_directory(&context.mounts, &SystemDisk, self.workspace.root())
                .and_then(|paths| paths.resolve(self.workspace.root(), text)),
        };
        resolved.map_err(CommandError::from)
    }

    /// The only path, or the root where the command was given none.
    pub fn path_or_root(&self) -> ArtifactPath {
        self.paths.first().cloned().unwrap_or_default()
    }

    /// Whether the argument with this index names something that is there.
    fn is_there(&self, index: usize) -> bool {
        match &self.located[index].mount {
            Some(_) => std::fs::symlink_metadata(&self.located[index].path).is_ok(),
            None => self.workspace.key_of(&self.paths[index], &self.holder).is_ok(),
        }
    }
}

/// Opens the site of a `PATH@@N` argument; a file that is really named so wins.
pub fn versioned_site(
    context: &Context,
    workspace: &WorkspaceArgs,
    of: &CheckoutOfArgs,
    argument: &Path,
) -> Result<(Site, ArtifactPath, Option<VersionSpec>)> {
    let whole = argument.to_owned();
    let Some((path, spec)) = split_version(argument) else {
        let site = context.site(workspace, of, &[whole])?;
        let path = site.path_or_root();
        return Ok((site, path, None));
    };
    let site = context.site(workspace, of, &[whole, path])?;
    let (index, spec) = if site.is_there(0) { (0, None) } else { (1, Some(spec)) };
    let path = site.paths[index].clone();
    Ok((site, path, spec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::ids::SystemIds;

    struct Place {
        context: Context,
        root: PathBuf,
        _dir: tempfile::TempDir,
    }

    /// Two workspaces, `one` and `two`, and a working directory with neither above it.
    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let clock = Arc::new(SystemClock::new().unwrap());
        let environment = Environment { clock, ids: Arc::new(SystemIds) };
        for name in ["one", "two"] {
            Workspace::init(&root.join(name), &environment).unwrap();
        }
        std::fs::create_dir_all(root.join("two/sub/dir")).unwrap();
        std::fs::create_dir(root.join("plain")).unwrap();
        let cwd = root.join("plain");
        let mounts = MountTable::default();
        let context = Context {
            environment,
            cwd,
            workspace: None,
            checkout: None,
            principal: None,
            mounts,
            only_looks: false,
        };
        Place { context, root, _dir: dir }
    }

    fn found(place: &Place, asked: Option<&str>, paths: &[&str]) -> Result<(PathBuf, Vec<String>)> {
        let workspace = WorkspaceArgs { workspace: asked.map(PathBuf::from) };
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let site = place.context.site(&workspace, &CheckoutOfArgs::default(), &paths)?;
        let names = site.paths.iter().map(ToString::to_string).collect();
        Ok((site.workspace.root().to_owned(), names))
    }

    #[test]
    fn a_workspace_is_asked_for_or_set_or_above() {
        let mut place = place();
        assert!(matches!(found(&place, None, &[]), Err(CommandError::NoWorkspace(_))));
        let names = vec!["a/x".to_owned()];
        assert_eq!(found(&place, Some("../one"), &["a/x"]).unwrap(), (place.root.join("one"), names.clone()));
        place.context.cwd = place.root.join("two/sub/dir");
        assert_eq!(found(&place, None, &["a/x"]).unwrap(), (place.root.join("two"), names.clone()));
        place.context.workspace = Some(place.root.join("one"));
        assert_eq!(found(&place, None, &["a/x"]).unwrap(), (place.root.join("one"), names.clone()));
        assert_eq!(found(&place, Some("../.."), &["a/x"]).unwrap(), (place.root.join("two"), names));
    }

    #[test]
    fn what_is_no_workspace_is_named() {
        let place = place();
        for asked in ["../plain", "../missing"] {
            let Err(CommandError::Engine(EngineError::NotAWorkspace(path))) = found(&place, Some(asked), &[])
            else {
                panic!("{asked} is a workspace")
            };
            assert!(path.ends_with(Path::new(asked).file_name().unwrap()), "{}", path.display());
        }
    }

    #[test]
    fn a_holder_is_a_user_and_a_checkout() {
        let mut place = place();
        place.context.checkout = Some("desk".into());
        let holder = |user, checkout| place.context.holder(user, checkout).unwrap().to_string();
        assert_eq!(holder(Some("ada"), None), "ada@desk");
        assert_eq!(holder(Some("ada"), Some("lab")), "ada@lab");
        assert!(holder(None, None).ends_with("@desk"));
        for (user, checkout, line) in [
            (
                "a\nb",
                "desk",
                "\"a\\nb\" can't be the name of a user: it has a control character; choose another with --as",
            ),
            ("a@b", "desk", "\"a@b\" can't be the name of a user: it has a '@'; choose another with --as"),
            ("ada", "", "\"\" can't be the name of a checkout: it is empty; choose another with --checkout"),
        ] {
            let error = place.context.holder(Some(user), Some(checkout)).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            assert_eq!(error.line(), line);
        }
    }
}
