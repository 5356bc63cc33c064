use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;

use super::*;
use crate::model::{ArtifactPath, DownloadPolicy, Name, NameClass, with_sources};
use crate::sys;

fn parse(text: &str) -> Result<Policy, ConfigError> {
    Config::parse(Path::new("config.toml"), text)
}

fn at(path: &str) -> ArtifactPath {
    ArtifactPath::parse(path).unwrap()
}

/// The error and its sources, as a command prints them.
fn message(text: &str) -> String {
    with_sources(&parse(text).unwrap_err())
}

fn uncommented(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with("##"))
        .map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or(line)))
        .collect()
}

#[test]
fn the_file_that_init_writes_shows_every_key_with_its_default() {
    assert_eq!(parse(&DEFAULT_CONFIG_TOML).unwrap(), Policy::default());
    let shown = uncommented(&DEFAULT_CONFIG_TOML);
    assert_eq!(parse(&shown).unwrap(), Policy::default());
    let keys = toml::from_str::<toml::Table>(&shown).unwrap();
    assert_eq!(keys.len(), 19, "a key is missing from the file, or has no test here");
    assert!(DEFAULT_CONFIG_TOML.lines().all(|line| line.is_empty() || line.starts_with('#')));
    assert!(DEFAULT_CONFIG_TOML.lines().all(|line| line.len() <= 120));
}

#[test]
fn each_key_changes_its_part_of_the_policy() {
    let default = Policy::default;
    let cases = [
        (r#"grace = "1500ms""#, Policy { grace_ms: 1_500, ..default() }),
        (r#"checkin_delay = "2s""#, Policy { checkin_delay_ms: 2_000, ..default() }),
        (r#"quiet = "1m""#, Policy { quiet_ms: 60_000, ..default() }),
        (r#"close = "durable""#, Policy { close: CloseDurability::Durable, ..default() }),
        (r#"list_xattrs = "all""#, Policy { list_xattrs: ListXattrs::All, ..default() }),
        (r#"list_xattrs = "none""#, Policy { list_xattrs: ListXattrs::None, ..default() }),
        (r#"live = ["*.mdb"]"#, Policy { live: NameGlobs::new(&["*.mdb"]).unwrap(), ..default() }),
    ];
    for (text, policy) in cases {
        assert_eq!(parse(text).unwrap(), policy, "{text}");
        assert_ne!(policy, default(), "{text}");
    }
}

#[test]
fn each_key_of_leases_can_be_set_for_all_or_for_some_paths() {
    let default = LeasePolicy::default;
    let cases = [
        ("lease = 'on-first-write'", LeasePolicy { need: LeaseNeed::OnFirstWrite, ..default() }),
        ("lease = 'none'", LeasePolicy { need: LeaseNeed::None, ..default() }),
        ("ttl = '1h30m'", LeasePolicy { ttl_ms: 5_400_000, ..default() }),
        ("max_ttl = '1h'", LeasePolicy { ttl_ms: 3_600_000, max_ttl_ms: 3_600_000, ..default() }),
        ("on_conflict = 'warn'", LeasePolicy { on_conflict: OnConflict::Warn, ..default() }),
        ("on_intent_overlap = 'warn'", LeasePolicy { on_intent_overlap: OnConflict::Warn, ..default() }),
        (
            "on_unresolved_writer = 'take'",
            LeasePolicy { unresolved_writer: UnresolvedWriter::Take, ..default() },
        ),
        ("renew = 'open'", LeasePolicy { renew: Renew::Open, ..default() }),
        ("renew = 'never'", LeasePolicy { renew: Renew::Never, ..default() }),
        ("release = 'close'", LeasePolicy { release: Release::Close, ..default() }),
    ];
    for (text, expected) in cases {
        assert_ne!(expected, default(), "{text}");
        assert_eq!(parse(text).unwrap().lease_at(&at("a/b")), expected, "{text}");
        let policy = parse(&format!("[[rule]]\npaths = ['a/*']\n{text}")).unwrap();
        assert_eq!(policy.lease_at(&at("a/b")), expected, "{text}");
        assert_eq!(policy.lease_at(&at("b/a")), default(), "{text}");
    }
}

#[test]
fn of_several_rules_each_key_is_from_the_last_one_that_has_it() {
    let policy = parse(
        "ttl = '1h'
        on_first_write = ['*.show']
        [[rule]]
        paths = ['*.show', 'a/**']
        ttl = '2h'
        renew = 'open'
        [[rule]]
        paths = ['a/b/**']
        ttl = '3h'
        [[rule]]
        paths = ['a/b/**']
        max_ttl = '2h30m'
        lease = 'none'",
    )
    .unwrap();
    let found = |path: &str| {
        let terms = policy.lease_at(&at(path));
        (terms.need, terms.ttl_ms / 60_000, terms.renew)
    };
    assert_eq!(found("x"), (LeaseNeed::Required, 60, Renew::Activity));
    assert_eq!(found("a/x"), (LeaseNeed::Required, 120, Renew::Open));
    assert_eq!(found("x.show"), (LeaseNeed::OnFirstWrite, 120, Renew::Open), "the old key is the first rule");
    assert_eq!(found("a/b/x.show"), (LeaseNeed::None, 150, Renew::Open), "and nobody gets more than max_ttl");
    assert!(policy.may_lease(|terms| terms.renew == Renew::Open));
    assert!(!policy.may_lease(|terms| terms.release == Release::Close));
}

/// Nobody gets more than `max_ttl`; the default of that is no reason to cut what the workspace says itself.
#[test]
fn the_longest_time_bounds_what_is_asked_for() {
    const DAY_MS: i64 = 86_400_000;
    let terms = |text: &str| parse(text).unwrap().leasing;
    assert_eq!(terms("").ttl_for(Some(31 * DAY_MS)), 30 * DAY_MS);
    assert_eq!(terms("").ttl_for(Some(1)), 1);
    assert_eq!(terms("").ttl_for(None), DAY_MS / 3);
    assert_eq!(terms("ttl = '40d'").ttl_for(None), 40 * DAY_MS);
    assert_eq!(terms("ttl = '40d'").ttl_for(Some(41 * DAY_MS)), 40 * DAY_MS);
}

#[test]
fn everybody_may_break_leases_unless_some_are_named() {
    let admitted = |text: &str| {
        let breakers = parse(text).unwrap().lease_at(&at("a")).breakers;
        ["ada", "bob"].map(|user| breakers.admit(user))
    };
    assert_eq!(admitted(""), [true, true]);
    assert_eq!(admitted("break = ['ada']"), [true, false]);
    assert_eq!(admitted("break = []"), [false, false]);
    assert_eq!(admitted("break = []\n[[rule]]\npaths = ['a']\nbreak = ['*']"), [true, true]);
}

#[test]
fn the_lists_of_names_replace_the_defaults_one_by_one() {
    let policy = parse("scratch = ['*.x', 'cache/']\ndocuments = ['*.tmp']").unwrap();
    let class = |text: &str| policy.scratch.classify(&Name::new(text).unwrap());
    assert_eq!(class("a.x"), NameClass::Scratch);
    assert_eq!(class("cache"), NameClass::Scratch);
    assert_eq!(policy.scratch.classify_directory(&Name::new("cache").unwrap()), NameClass::Scratch);
    assert_eq!(class("a.bak"), NameClass::Document);
    assert_eq!(class("a.tmp"), NameClass::Document);
    assert_eq!(class("a.lock"), NameClass::Ambiguous);
}

#[test]
fn an_error_names_the_file_the_line_and_the_key() {
    let cases = [
        ("ttl = \"8h\"\n\nttk = \"8h\"", "config.toml:3: \"ttk\" is not understood: unknown field `ttk`"),
        ("ttl = 8", "config.toml:1: \"ttl\" is not understood: invalid type: integer `8`"),
        ("\nclose = \"never\"", "config.toml:2: \"close\" is not understood: unknown variant `never`"),
        (
            "live = [\n  \"*.db\",\n  3,\n]",
            "config.toml:3: \"live\" is not understood: invalid type: integer `3`",
        ),
        ("\n\nttl = ", "config.toml:3: \"ttl\" is not understood: "),
        ("\n[[x", "config.toml:2: the text is not understood: "),
        ("ttl = \"1h\"\nttl = \"2h\"", "config.toml:2: \"ttl\" is not understood: duplicate key"),
        ("\ngrace = \"-5s\"", "config.toml:2: \"grace\" has no usable duration: \"-5s\" is not a duration"),
        ("quiet = \"0s\"", "config.toml:1: \"quiet\" has no usable duration: \"0s\" is no time at all"),
        (
            "\nscratch = [\"[a\"]",
            "config.toml:2: \"scratch\" has no usable globs: \"[a\" is not a valid glob: ",
        ),
        (
            "\n\nambiguous = [\"a/b\"]",
            "config.toml:3: \"ambiguous\" has no usable globs: \"a/b\" can never match",
        ),
        ("documents = [\"\"]", "config.toml:1: \"documents\" has no usable globs: \"\" can never match"),
        ("live = [\"a/\"]", "config.toml:1: \"live\" has no usable globs: \"a/\" can never match"),
        (
            "on_first_write = [\"a/\"]",
            "config.toml:1: \"on_first_write\" has no usable globs: \"a/\" can never match",
        ),
        ("lease = \"some\"", "config.toml:1: \"lease\" is not understood: unknown variant `some`"),
        (
            "\nmax_ttl = \"1h\"\nttl = \"2h\"",
            "config.toml:3: \"ttl\" can't be used: longer than \"max_ttl\" beside it",
        ),
        ("break = \"ada\"", "config.toml:1: \"break\" is not understood: invalid type: string"),
        ("break = [\"ada@desk\"]", "config.toml:1: \"break\" can't be used: a list of users' names"),
        ("rule = 3", "config.toml:1: \"rule\" is not understood: invalid type: integer `3`"),
        ("\n[rule]\nttl = \"1h\"", "config.toml:2: \"rule\" is not understood: invalid type: map"),
        ("[[rule]]\nttl = \"1h\"", "config.toml:1: \"rule\" is not understood: missing field `paths`"),
    ];
    for (text, start) in cases {
        let message = message(text);
        assert!(message.starts_with(start), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

/// Also in a rule, whichever it is and whatever tables stand before it; and nothing of `[remote]` is repeated.
#[test]
fn an_error_in_a_rule_names_its_line_and_key() {
    let before = "[[rule]]\npaths = ['a']\n\n[remote]\nurl = 'https://sesame'\n[[rule]]\npaths = ['b']\n";
    let cases = [
        ("ttk = '8h'", "\"rule.ttk\" is not understood: unknown field `ttk`"),
        ("renew = 'always'", "\"rule.renew\" is not understood: unknown variant `always`"),
        ("ttl = 3", "\"rule.ttl\" is not understood: invalid type: integer `3`"),
        ("ttl = '3'", "\"rule.ttl\" has no usable duration: \"3\" is not a duration"),
        ("max_ttl = '0s'", "\"rule.max_ttl\" has no usable duration: \"0s\" is no time at all"),
        ("break = ['']", "\"rule.break\" can't be used: a list"),
        ("break = [1]", "\"rule.break\" is not understood: invalid type: integer `1`"),
        ("grace = '8h'", "\"rule.grace\" is not understood: unknown field `grace`"),
    ];
    for (line, start) in cases {
        let message = message(&format!("{before}{line}"));
        assert!(message.starts_with(&format!("config.toml:8: {start}")), "{message}");
        assert!(!message.contains('\n') && !message.contains("sesame"), "{message}");
    }
    let paths = message(&before.replace("'b'", "'b/'"));
    assert!(paths.starts_with("config.toml:7: \"rule.paths\" has no usable globs: \"b/\""), "{paths}");
    let remote = message(&before.replace("https://sesame'", "https://sesame'\ntokn = 'sesame'"));
    assert!(remote.starts_with("config.toml:6: [remote] can't be used: "), "{remote}");
}

#[test]
fn a_missing_file_leaves_the_defaults_and_an_unreadable_one_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    assert_eq!(Config::load(&path).unwrap(), Policy::default());
    fs::write(&path, b"ttl = \"\xff\"").unwrap();
    assert!(matches!(Config::load(&path), Err(ConfigError::Read { .. })));
    fs::create_dir(dir.path().join("sub")).unwrap();
    assert!(matches!(Config::load(&dir.path().join("sub")), Err(ConfigError::Read { .. })));
    fs::write(&path, "ttl = \"1m\"").unwrap();
    assert_eq!(Config::load(&path).unwrap().leasing.ttl_ms, 60_000);
}

/// Whoever is governed by the policy must not have written it, nor be able to put another in its place.
#[test]
fn a_file_that_others_could_have_written_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    fs::write(&path, "").unwrap();
    for (mode, is_refused) in [(0o666, true), (0o602, true), (0o664, false), (0o600, false)] {
        set_mode(&path, mode);
        let refused = matches!(Config::load(&path), Err(ConfigError::WorldWritable { .. }));
        assert_eq!(refused, is_refused, "{mode:o}");
    }
    for (mode, is_refused) in [(0o777, true), (0o1777, true), (0o775, false), (0o700, false)] {
        set_mode(dir.path(), mode);
        let refused = matches!(Config::load(&path), Err(ConfigError::OpenDirectory { .. }));
        assert_eq!(refused, is_refused, "{mode:o}");
    }
    fs::rename(&path, dir.path().join("elsewhere")).unwrap();
    symlink("elsewhere", &path).unwrap();
    assert!(matches!(Config::load(&path), Err(ConfigError::Symlink { .. })));
    fs::remove_file(&path).unwrap();
    set_mode(dir.path(), 0o777);
    assert!(Config::load(&path).is_err(), "a file that is missing may have been removed by anybody");
}

/// A file of root's is trusted, and one of the workspace's owner, and nobody else's. Needs root.
#[test]
fn a_file_of_another_user_is_refused() {
    if sys::effective_ids().0 != 0 {
        return;
    }
    const OWNER: u32 = 4_711;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    fs::write(&path, "").unwrap();
    std::os::unix::fs::chown(dir.path(), Some(OWNER), None).unwrap();
    for (owner, is_refused) in [(0, false), (OWNER, false), (OWNER + 1, true)] {
        std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
        let refused = matches!(Config::load(&path), Err(ConfigError::ForeignOwner { .. }));
        assert_eq!(refused, is_refused, "{owner}");
    }
}

/// What makes another file of it is seen without reading it, and so is what it may not be trusted for.
#[test]
fn a_changed_file_is_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let mut known = vec![FileIdentity::of(&path)];
    let changes: [(&str, &dyn Fn()); 4] = [
        ("made", &|| fs::write(&path, "").unwrap()),
        ("written", &|| fs::write(&path, "ttl = '1h'").unwrap()),
        ("replaced", &|| {
            fs::write(dir.path().join("new"), "ttl = '2h'").unwrap();
            fs::rename(dir.path().join("new"), &path).unwrap();
        }),
        ("opened to all", &|| fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap()),
    ];
    for (what, change) in changes {
        assert_eq!(known.last(), Some(&FileIdentity::of(&path)), "nothing happened before it was {what}");
        change();
        let identity = FileIdentity::of(&path);
        assert!(!known.contains(&identity), "{what}");
        known.push(identity);
    }
}

#[test]
fn the_default_policy_knows_databases_and_leases_every_open() {
    let policy = Policy::default();
    assert!(policy.live.is_match(&Name::new("a.sqlite").unwrap()));
    assert!(!policy.live.is_match(&Name::new("a.docx").unwrap()));
    assert_eq!(policy.lease_at(&at("a/b.docx")).need, LeaseNeed::Required);
}

proptest! {
    #[test]
    fn no_text_panics(
        text in any::<String>(),
        key in "(ttl|scratch|close|live|x)",
        value in r#"["'\[\]a-z0-9,.* ]{0,12}"#,
    ) {
        let _ = parse(&text);
        let _ = parse(&format!("{key} = {value}"));
    }
}

#[test]
fn a_remote_store_is_read_with_its_defaults() {
    let remote = |text: &str| parse(text).unwrap().remote.unwrap();
    let given = remote("[remote]\nurl = 'https://a'");
    let default = Remote {
        url: "https://a".into(),
        token: None,
        policy: DownloadPolicy::All,
        upload_timeout_ms: 60_000,
        download_timeout_ms: 60_000,
        write_back_timeout_ms: 60_000,
    };
    assert_eq!(given, default);
    let text = "remote = {url = 'https://a', policy = 'minimal', upload_timeout = '2s', download_timeout = '3s', write_back_timeout = '1d'}";
    let (policy, times) = (DownloadPolicy::Minimal, (2_000, 3_000, 86_400_000));
    let (upload_timeout_ms, download_timeout_ms, write_back_timeout_ms) = times;
    let expected =
        Remote { policy, upload_timeout_ms, download_timeout_ms, write_back_timeout_ms, ..default.clone() };
    assert_eq!(remote(text), expected);
    let shown =
        uncommented(&DEFAULT_CONFIG_TOML.replace("## [remote]", "# [remote]").replace("## url", "# url"));
    assert_eq!(remote(&shown).policy, DownloadPolicy::All, "the template's table is a table");
}

/// Whatever is wrong is told with its line, and neither an address nor a token with it.
#[test]
fn a_remote_store_that_cannot_be_used_is_refused_without_its_values() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("sesame");
    fs::write(&token, "sesame\n").unwrap();
    let path = token.display();
    let token_file = format!("[remote]\nurl = 'https://sesame'\ntoken_file = '{path}'");
    let set_mode = |mode| fs::set_permissions(&token, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o640, 0o604, 0o620] {
        set_mode(mode);
        assert!(message(&token_file).contains(":3: "), "{}", message(&token_file));
        assert!(!message(&token_file).contains("sesame"), "{}", message(&token_file));
    }
    set_mode(0o600);
    let read = parse(&token_file).unwrap().remote.unwrap();
    assert_eq!(read.token.as_deref(), Some("sesame"));
    assert!(!format!("{read:?}").contains("sesame"), "{read:?}");
    for (text, line) in [
        ("[remote]", 1),
        ("ttl = '1h'\nremote = 'https://sesame'", 2),
        ("remote = ['https://sesame']", 1),
        ("[remote]\nurl = ['https://sesame']", 2),
        ("[remote]\nurl = 'https://sesame'\ntokn = 'sesame'", 3),
        ("[remote]\nurl = 'https://sesame'\npolicy = 'sesame'", 3),
        ("[remote]\nurl = 'https://sesame'\npolicy = {sesame = 1}", 3),
        ("[remote]\nurl = 'https://sesame'\ntoken_file = '/nonexistent/sesame'", 3),
        ("[remote]\nurl = 'https://sesame'\ntoken_file = '/'", 3),
        ("[remote]\nurl = 'https://sesame'\nupload_timeout = '0s'", 3),
        ("[remote]\nurl = 'https://sesame'\nupload_timeout = '2d'", 3),
        ("[remote]\nurl = https://sesame", 2),
    ] {
        let message = message(text);
        assert!(message.contains(&format!("config.toml:{line}: ")), "{text}: {message}");
        assert!(!message.contains("sesame"), "{text}: {message}");
    }
}

/// In a workspace that a group shares the group may read the token, and nobody may write it but its owner.
#[test]
fn a_group_that_shares_the_workspace_may_read_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let (config, token) = (dir.path().join("config.toml"), dir.path().join("token"));
    fs::write(&token, "sesame").unwrap();
    let text = "[remote]\nurl = 'https://example.org'\ntoken_file = 'token'";
    let reads = |mode| {
        fs::set_permissions(&token, fs::Permissions::from_mode(mode)).unwrap();
        Config::parse(&config, text).is_ok()
    };
    assert_eq!([0o600, 0o640, 0o644].map(reads), [true, false, false]);
    crate::sys::share_dir_with(dir.path(), crate::sys::effective_ids().1).unwrap();
    assert_eq!([0o600, 0o640, 0o660, 0o644].map(reads), [true, true, false, false]);
}
