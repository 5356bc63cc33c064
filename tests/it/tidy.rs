//! The architecture, kept by reading `src/`: who may use whom, what is where only, and how long things may be.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy_source::{SourceFile, all};

/// What each module of the crate's root may use. A module that is missing here fails the test.
///
/// `commands` reads the command line's structs (`cli`) and works on the engine: it knows neither how a mounted tree
/// is made (`vfs`, `fuse`) nor where state is kept (`catalog`, `blobs`). Its client and the server in `app` share one
/// protocol, which belongs to `commands`.
const LAYERS: [(&str, &[&str]); 15] = [
    (
        "app",
        &[
            "blobs", "catalog", "cli", "clock", "commands", "config", "engine", "fuse", "ids", "model",
            "serve", "sys", "vfs",
        ],
    ),
    ("commands", &["cli", "clock", "config", "engine", "ids", "model", "sys"]),
    ("cli", &["config", "model", "sys"]),
    ("fuse", &["model", "sys", "vfs"]),
    ("serve", &["blobs", "clock", "engine", "model"]),
    ("vfs", &["blobs", "catalog", "clock", "config", "engine", "ids", "model", "sys"]),
    ("engine", &["blobs", "catalog", "clock", "config", "host", "ids", "model", "sys"]),
    ("catalog", &["clock", "config", "ids", "model", "sys"]),
    ("blobs", &["clock", "ids", "model", "sys"]),
    ("host", &["clock", "ids", "model", "sys"]),
    ("config", &["model", "sys"]),
    ("clock", &["model", "sys"]),
    ("ids", &["model"]),
    ("model", &[]),
    ("sys", &[]),
];

/// Crates and words that few modules may use.
const ROOMS: [(&str, &[&str]); 12] = [
    ("fuser", &["src/fuse/"]),
    ("rusqlite", &["src/catalog/"]),
    ("sha2", &["src/blobs/"]),
    ("reqwest", &["src/blobs/http/"]),
    ("rustls", &["src/blobs/http/"]),
    ("axum", &["src/serve/"]),
    ("hyper", &["src/serve/"]),
    ("hyper_util", &["src/serve/"]),
    ("subtle", &["src/serve/"]),
    ("libc", &["src/sys/"]),
    ("unsafe", &["src/sys/"]),
    ("tokio", &["src/app/", "src/serve/"]),
];

const MAX_FILE_LINES: usize = 800;
const MAX_FUNCTION_LINES: usize = 70;

#[test]
fn each_layer_uses_only_those_below_it() {
    let mut faults = Vec::new();
    for file in all() {
        let Some(own) = file.module().first().cloned() else { continue };
        let Some((_, allowed)) = LAYERS.iter().find(|(module, _)| *module == own) else {
            faults.push(format!("{}: module `{own}` has no place among the layers", file.at(1)));
            continue;
        };
        for (line, used) in modules_used(&file) {
            if used != own && is_module(&used) && !allowed.contains(&used.as_str()) {
                faults.push(format!("{}: `{own}` may not use `{used}`", file.at(line)));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn no_modules_need_each_other() {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let files = all();
    let modules: BTreeSet<String> = files.iter().map(|file| file.module().join("::")).collect();
    for file in &files {
        let own = file.module();
        for (_, used) in paths_used(file) {
            if let Some((from, to)) = siblings(&own, &used).filter(|(_, to)| modules.contains(to)) {
                edges.entry(from).or_default().insert(to);
            }
        }
    }
    let cycles: Vec<String> = edges.keys().filter_map(|module| cycle_through(&edges, module)).collect();
    assert_none(&cycles);
}

#[test]
fn outer_crates_and_unsafe_code_stay_in_their_rooms() {
    let mut faults = Vec::new();
    for file in all() {
        for (word, rooms) in ROOMS {
            if rooms.iter().any(|room| file.path.to_str().unwrap().starts_with(room)) {
                continue;
            }
            for (line, text) in file.code.lines().enumerate().filter(|(_, text)| has_word(text, word)) {
                let rooms = rooms.join(", ");
                faults.push(format!("{}: `{word}` belongs into {rooms}: {}", file.at(line + 1), text.trim()));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn failures_are_answered_and_only_bugs_panic() {
    let mut faults = Vec::new();
    for file in all() {
        for (line, text) in file.before_tests(&file.code) {
            for call in [".unwrap()", ".unwrap_err()", "dbg!(", "println!(", "process::exit("] {
                if text.contains(call) {
                    faults.push(format!("{}: `{call}`: {}", file.at(line), text.trim()));
                }
            }
        }
        faults.extend(panics_without_bug(&file));
    }
    assert_none(&faults);
}

/// `expect`, `panic!` and their kin say `BUG:`, since nothing else may end the process.
fn panics_without_bug(file: &SourceFile) -> Vec<String> {
    let mut faults = Vec::new();
    let lines: Vec<&str> = file.uncommented.lines().collect();
    for (line, text) in file.before_tests(&file.uncommented) {
        for call in [".expect(", ".expect_err(", "panic!(", "unreachable!("] {
            let Some(at) = text.find(call) else { continue };
            let next = lines.get(line).copied().unwrap_or_default();
            let argument =
                [&text[at + call.len()..], next].into_iter().map(str::trim).find(|rest| !rest.is_empty());
            if !argument.is_some_and(|argument| argument.starts_with("\"BUG: ")) {
                faults.push(format!("{}: `{call}` without `BUG: `: {}", file.at(line), text.trim()));
            }
        }
    }
    faults
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [["TO", "DO"], ["FIX", "ME"], ["to", "do!"], ["unimple", "mented!"], ["HA", "CK:"]]
        .map(|parts| parts.concat());
    let mut faults = Vec::new();
    for file in all() {
        for (line, text) in file.text.lines().enumerate() {
            let found = marks.iter().filter(|mark| text.contains(mark.as_str()));
            faults.extend(found.map(|mark| format!("{}: `{mark}`: {}", file.at(line + 1), text.trim())));
        }
    }
    assert_none(&faults);
}

#[test]
fn files_and_functions_stay_short() {
    let mut faults = Vec::new();
    for file in all() {
        if file.lines_before_tests >= MAX_FILE_LINES {
            faults.push(format!("{}: {} lines before the tests", file.at(1), file.lines_before_tests));
        }
        let code: Vec<(usize, &str)> = file.before_tests(&file.code).collect();
        for (at, (line, text)) in code.iter().enumerate().filter(|(_, (_, text))| begins_function(text)) {
            let length = function_length(&code[at..]);
            if length > MAX_FUNCTION_LINES {
                faults.push(format!("{}: {length} lines: {}", file.at(*line), text.trim()));
            }
        }
    }
    assert_none(&faults);
}

fn begins_function(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let is_qualifier = |word: &str| {
        word.starts_with("pub") || matches!(word, "const" | "unsafe" | "async" | "extern" | "in" | "super)")
    };
    words.by_ref().find(|word| !is_qualifier(word)) == Some("fn")
}

/// The lines up to the closing brace, which rustfmt puts below the beginning of the function.
fn function_length(code: &[(usize, &str)]) -> usize {
    let first = code[0].1;
    let indent = &first[..first.len() - first.trim_start().len()];
    let end = format!("{indent}}}");
    if first.ends_with('}') || first.ends_with(';') {
        return 1;
    }
    code.iter()
        .position(|(_, text)| *text == end || text.starts_with(indent) && text.ends_with(");"))
        .map_or(1, |at| at + 1)
}

fn is_module(name: &str) -> bool {
    LAYERS.iter().any(|(module, _)| *module == name)
}

/// The crate's modules that a file names, with the lines.
fn modules_used(file: &SourceFile) -> Vec<(usize, String)> {
    paths_used(file).into_iter().filter_map(|(line, path)| Some((line, path.first()?.clone()))).collect()
}

/// The paths within the crate that a file names before its tests, from the crate's root, with the lines.
fn paths_used(file: &SourceFile) -> Vec<(usize, Vec<String>)> {
    let own = file.module();
    let code: Vec<&str> = file.before_tests(&file.code).map(|(_, text)| text).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (at, keyword) in word_starts(&code, &["crate", "super"]) {
        let line = 1 + code[..at].matches('\n').count();
        let rest = &code[at + keyword.len()..];
        let base = if keyword == "crate" { Vec::new() } else { own[..own.len().saturating_sub(1)].to_vec() };
        found.extend(paths_after(rest, base).into_iter().map(|path| (line, path)));
    }
    found
}

/// Where one of some words stands that no path comes before.
fn word_starts<'a>(code: &str, words: &[&'a str]) -> Vec<(usize, &'a str)> {
    let mut starts: Vec<(usize, &'a str)> = Vec::new();
    for word in words {
        let whole = |at: &usize| {
            let before = code[..*at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
                && code[at + word.len()..].starts_with("::")
        };
        starts.extend(code.match_indices(word).map(|(at, _)| at).filter(whole).map(|at| (at, *word)));
    }
    starts
}

/// The paths that go on after `crate` or `super`: `::a::b`, `::{a, b::c}`, `::super::a`.
fn paths_after(rest: &str, base: Vec<String>) -> Vec<Vec<String>> {
    let Some(rest) = rest.strip_prefix("::") else { return vec![base] };
    if let Some(group) = rest.strip_prefix('{') {
        return group_items(group)
            .into_iter()
            .flat_map(|item| paths_after(&format!("::{item}"), base.clone()))
            .collect();
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let mut path = base;
    match &rest[..end] {
        "super" => drop(path.pop()),
        "" | "self" => return vec![path],
        name => path.push(name.to_owned()),
    }
    paths_after(&rest[end..], path)
}

/// The items of `{a, b::{c, d}}`, without the brace that opens it.
fn group_items(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut items) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                items.push(group[from..at].trim());
                return items;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(group[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    items
}

/// The two modules of one parent through which a use goes: `a::x` and `a::y` where `a::x::z` uses `a::y::w`.
fn siblings(own: &[String], used: &[String]) -> Option<(String, String)> {
    let shared = own.iter().zip(used).take_while(|(a, b)| a == b).count();
    (shared < own.len() && shared < used.len())
        .then(|| (own[..=shared].join("::"), used[..=shared].join("::")))
}

/// The shortest way from a module back to it.
fn cycle_through(edges: &BTreeMap<String, BTreeSet<String>>, start: &String) -> Option<String> {
    let mut ways: Vec<Vec<&String>> = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in edges.get(*way.last()?).into_iter().flatten() {
            if next == start {
                let names: Vec<&str> = way.iter().map(|name| name.as_str()).collect();
                return Some(format!("{} -> {start}", names.join(" -> ")));
            }
            if seen.insert(next) {
                ways.insert(0, way.iter().copied().chain([next]).collect());
            }
        }
    }
    None
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_part)
            && !text[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn paths_are_found_in_all_their_spellings() {
    let base = || vec!["vfs".to_owned()];
    let joined = |paths: Vec<Vec<String>>| paths.iter().map(|path| path.join("::")).collect::<Vec<_>>();
    assert_eq!(joined(paths_after("::{sys, model::{A, B}}; x", Vec::new())), ["sys", "model::A", "model::B"]);
    assert_eq!(joined(paths_after("::node::Node) {", base())), ["vfs::node::Node"]);
    assert_eq!(joined(paths_after("::super::engine::X", base())), ["engine::X"]);
    let pair = siblings(&["vfs".into(), "io".into()], &["vfs".into(), "node".into(), "Node".into()]);
    assert_eq!(pair, Some(("vfs::io".into(), "vfs::node".into())));
}
