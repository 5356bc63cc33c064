use std::error::Error;
use std::fs;

use proptest::prelude::*;

use super::*;
use crate::model::{ArtifactPath, DownloadPolicy, Name, NameClass};

fn parse(text: &str) -> Result<Policy, ConfigError> {
    Config::parse(Path::new("config.toml"), text)
}

/// The error and its sources, as a command prints them.
fn message(text: &str) -> String {
    let error = parse(text).unwrap_err();
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        line.push_str(&format!(": {error}"));
        source = error.source();
    }
    line
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
    assert_eq!(keys.len(), 12, "a key is missing from the file, or has no test here");
    assert!(DEFAULT_CONFIG_TOML.lines().all(|line| line.is_empty() || line.starts_with('#')));
    assert!(DEFAULT_CONFIG_TOML.lines().all(|line| line.len() <= 120));
}

#[test]
fn each_key_changes_its_part_of_the_policy() {
    let default = Policy::default;
    let cases = [
        (r#"ttl = "1h30m""#, Policy { ttl_ms: 5_400_000, ..default() }),
        (r#"grace = "1500ms""#, Policy { grace_ms: 1_500, ..default() }),
        (r#"checkin_delay = "2s""#, Policy { checkin_delay_ms: 2_000, ..default() }),
        (r#"quiet = "1m""#, Policy { quiet_ms: 60_000, ..default() }),
        (r#"close = "durable""#, Policy { close: CloseDurability::Durable, ..default() }),
        (r#"list_xattrs = "all""#, Policy { list_xattrs: ListXattrs::All, ..default() }),
        (r#"list_xattrs = "none""#, Policy { list_xattrs: ListXattrs::None, ..default() }),
        (
            r#"on_unresolved_writer = "take""#,
            Policy { unresolved_writer: UnresolvedWriter::Take, ..default() },
        ),
        (r#"live = ["*.mdb"]"#, Policy { live: NameGlobs::new(&["*.mdb"]).unwrap(), ..default() }),
        (
            r#"on_first_write = ["a/*"]"#,
            Policy { on_first_write: PathGlobs::new(&["a/*"]).unwrap(), ..default() },
        ),
    ];
    for (text, policy) in cases {
        assert_eq!(parse(text).unwrap(), policy, "{text}");
        assert_ne!(policy, default(), "{text}");
    }
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
    ];
    for (text, start) in cases {
        let message = message(text);
        assert!(message.starts_with(start), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn a_missing_file_leaves_the_defaults_and_an_unreadable_one_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    assert_eq!(Config::load(&path).unwrap(), Policy::default());
    fs::write(&path, b"ttl = \"\xff\"").unwrap();
    assert!(matches!(Config::load(&path), Err(ConfigError::Read { .. })));
    assert!(matches!(Config::load(dir.path()), Err(ConfigError::Read { .. })));
    fs::write(&path, "ttl = \"1m\"").unwrap();
    assert_eq!(Config::load(&path).unwrap().ttl_ms, 60_000);
}

#[test]
fn a_file_that_everybody_may_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    fs::write(&path, "").unwrap();
    for (mode, is_refused) in [(0o666, true), (0o602, true), (0o664, false), (0o600, false)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let refused = matches!(Config::load(&path), Err(ConfigError::WorldWritable { .. }));
        assert_eq!(refused, is_refused, "{mode:o}");
    }
}

#[test]
fn the_default_policy_knows_databases_and_leases_every_open() {
    let policy = Policy::default();
    assert!(policy.live.is_match(&Name::new("a.sqlite").unwrap()));
    assert!(!policy.live.is_match(&Name::new("a.docx").unwrap()));
    assert!(!policy.on_first_write.is_match(&ArtifactPath::parse("a/b.docx").unwrap()));
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
