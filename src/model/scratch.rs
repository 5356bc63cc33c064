use super::{GlobError, Name, NameGlobs};

/// What a name looks like, by its spelling alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameClass {
    /// A document's name.
    Document,
    /// Always scratch: a lock, temporary, backup or journal name.
    Scratch,
    /// Scratch only while it is young or stands beside its document; see [`ScratchRules::stems`].
    Ambiguous,
}

/// A glob of the defaults, and the program that makes such names.
pub type KnownGlob = (&'static str, &'static str);

/// Names that are never documents. Those that end in `/` may be directories too.
///
/// Windows programs' names match in any case, `(?i)`: clients that reach the tree by SMB may upper-case them.
pub const SCRATCH: &[KnownGlob] = &[
    // Lock and owner files: an editing session is on.
    (".~lock.*#", "LibreOffice: who edits"),
    (".#*", "Emacs: lock, a dangling symlink"),
    ("(?i)~$*", "MS Office: who edits"),
    ("(?i)*.laccdb", "MS Access: lock"),
    // LevelDB names its tables NUMBER.ldb: those are the ambiguous `*[0-9].ldb`.
    ("(?i)*[!0-9].ldb", "MS Access, old: lock"),
    ("(?i)*.dwl", "AutoCAD: lock"),
    ("(?i)*.dwl2", "AutoCAD: lock"),
    ("~*.lck", "KiCad: lock"),
    (".*.lck", "CAD programs: lock"),
    // Temporaries that are renamed over the document, and what systems litter.
    ("lu[0-9]*.tmp", "LibreOffice: save"),
    (".goutputstream-*", "GLib (gedit, GIMP, Nautilus): save"),
    ("*.blend@", "Blender: save"),
    ("*.FCStd.[0-9a-f]*-*-*-*-*", "FreeCAD: save"),
    ("(?i)~WRD[0-9]*.tmp", "MS Word: save"),
    ("(?i)~WRL[0-9]*.tmp", "MS Word: the old document, renamed away"),
    ("(?i)~DF*.tmp", "MS Office, OLE"),
    (
        "(?i)[0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F].tmp",
        "MS Excel: the old document",
    ),
    ("(?i)ppt[0-9A-F]*.tmp", "MS PowerPoint: save"),
    ("*.sb-????????-??????", "macOS: safe save"),
    (".~tmp~/", "rsync --delay-updates"),
    (".rsync-partial/", "rsync --partial-dir"),
    // A whole number, since people number their documents: `#1 offer.odt`.
    ("#[0-9]*[0-9]", "Linux: files without a name (O_TMPFILE)"),
    (".fuse_hidden*", "libfuse: removed but open"),
    (".nfs[0-9a-f]*", "NFS: removed but open"),
    (".git/", "git: its own store, or a pointer to it"),
    ("fp-info-cache", "KiCad: cache"),
    (".DS_Store", "macOS Finder: view"),
    ("._*", "macOS: AppleDouble attributes"),
    (".TemporaryItems/", "macOS"),
    ("(?i)Thumbs.db", "Windows Explorer: thumbnails"),
    ("(?i)desktop.ini", "Windows Explorer: view"),
    (".Trash-*/", "freedesktop.org: trash"),
    (".directory", "KDE Dolphin: view"),
    ("*.crdownload", "Chromium: download"),
    // Backups of the old version.
    ("*~", "Emacs, vim, nano, gedit, kate, cp -b; numbered ones too"),
    ("*.bak", "sed -i.bak, Python's fileinput, many more"),
    ("*.orig", "patch -b, vim's patchmode, git mergetool"),
    ("*.rej", "patch: what did not apply"),
    ("*.blend[0-9]*", "Blender: .blend1, .blend2"),
    ("*.FCStd[0-9]*", "FreeCAD"),
    ("*.FCBak", "FreeCAD, newer"),
    ("*-bak", "KiCad"),
    ("*.kdbx.old", "KeePassXC"),
    // Journals and recovery data, which belong to a document while it is open.
    ("#*#", "Emacs: auto-save"),
    (".*.sw[a-px]", "vim: swap; nano -G: lock"),
    (".*.un~", "vim: undo"),
    (".*.kate-swp", "kate, KWrite, KDevelop: swap"),
    ("*-journal", "SQLite: rollback journal"),
    ("*-wal", "SQLite: write-ahead log"),
    ("*-shm", "SQLite: shared memory"),
    ("*-mj[0-9A-F]*", "SQLite: super-journal"),
    ("(?i)~WRA[0-9]*.*", "MS Word: recovery"),
    ("(?i)*.asd", "MS Word: auto-save"),
    ("(?i)*.sv$", "AutoCAD: auto-save"),
    ("_autosave-*", "KiCad: auto-save"),
];

/// Names that a program made for a moment, or that a person chose: their age and their stem tell.
///
/// The runs of six are mkstemp(3)'s `XXXXXX`.
pub const AMBIGUOUS: &[KnownGlob] = &[
    ("?*.[A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9]", "GLib, Qt, KDE: NAME.XXXXXX"),
    (".*.[A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9]", "rsync: .NAME.XXXXXX"),
    ("*.o[A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9]", "patch: NAME.oXXXXXX"),
    ("sed[A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9]", "sed -i"),
    ("XX[A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9]", "perl -i"),
    ("zi[A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9]", "zip"),
    ("st[A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9][A-Za-z0-9]", "ar, strip, objcopy"),
    (
        "tmp[A-Za-z0-9_][A-Za-z0-9_][A-Za-z0-9_][A-Za-z0-9_][A-Za-z0-9_][A-Za-z0-9_]",
        "Emacs: file-precious-flag",
    ),
    ("tmp[a-z0-9_][a-z0-9_][a-z0-9_][a-z0-9_][a-z0-9_][a-z0-9_][a-z0-9_][a-z0-9_]", "Python: tempfile"),
    // vim adds 123 while the name is taken.
    ("{4913,5036,5159,5282}", "vim: may I write here?"),
    ("[0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F][0-9A-F]", "MS Excel, PowerPoint: save"),
    ("*.lock", "Qt, git: lock of NAME"),
    ("(?i)*[0-9].ldb", "MS Access: lock; LevelDB: a table"),
    ("*.kicad_prl", "KiCad: view of a board"),
    ("*.part", "Firefox, KDE: download"),
    ("(?i)*.tmp", "many"),
];

/// Documents whose six-character extension would make them look like a temporary `NAME.XXXXXX`.
pub const DOCUMENTS: &[KnownGlob] = &[
    ("(?i)*.{sldprt,sldasm,slddrw}", "SolidWorks"),
    ("(?i)*.{uasset,prefab}", "Unreal, Unity"),
    ("(?i)*.{prproj,logicx,ardour}", "Premiere, Logic, Ardour"),
    ("(?i)*.{drawio,sketch}", "draw.io, Sketch"),
    ("(?i)*.{sqlite,pickle,ifczip}", "data"),
    ("(?i)*.{backup,config,ledger}", "people"),
    ("(?i)*.{gradle,groovy,coffee,svelte}", "sources"),
];

/// A document's ending in place of a temporary's, where the temporary's name does not hold the document's whole name.
const SIBLINGS: &[(&str, &[&str])] =
    &[(".blend@", &[".blend"]), (".ldb", &[".mdb", ".accdb"]), (".kicad_prl", &[".kicad_pcb", ".kicad_pro"])];

/// The globs by which names are told apart; they match the base name.
///
/// A glob that ends in `/` holds for files and directories, any other for what is no directory: a person's directory
/// `travel-journal` or `old.bak` is versioned with all that lies below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScratchRules {
    scratch: NameGlobs,
    directories: NameGlobs,
    ambiguous: NameGlobs,
    documents: NameGlobs,
    stems: Vec<StemRule>,
}

impl ScratchRules {
    /// Compiles the globs of what is always scratch and of what is ambiguous, with no exceptions.
    pub fn new(scratch: &[String], ambiguous: &[String]) -> Result<Self, GlobError> {
        let bare = |glob: &String| glob.strip_suffix('/').unwrap_or(glob).to_owned();
        let directories: Vec<String> = scratch.iter().filter(|glob| glob.ends_with('/')).map(bare).collect();
        Ok(Self {
            scratch: NameGlobs::new(&scratch.iter().map(bare).collect::<Vec<_>>())?,
            directories: NameGlobs::new(&directories)?,
            ambiguous: NameGlobs::new(ambiguous)?,
            documents: NameGlobs::new::<&str>(&[])?,
            stems: ambiguous.iter().filter_map(|glob| StemRule::of(glob)).collect::<Result<_, _>>()?,
        })
    }

    /// Excepts names from the ambiguous ones; what is always scratch stays so.
    pub fn with_documents(self, documents: &[String]) -> Result<Self, GlobError> {
        Ok(Self { documents: NameGlobs::new(documents)?, ..self })
    }

    /// Tells what the name of a file, symlink, FIFO or socket looks like.
    pub fn classify(&self, name: &Name) -> NameClass {
        if self.scratch.is_match(name) {
            NameClass::Scratch
        } else if self.ambiguous.is_match(name) && !self.documents.is_match(name) {
            NameClass::Ambiguous
        } else {
            NameClass::Document
        }
    }

    /// Tells what the name of a directory looks like: never ambiguous.
    pub fn classify_directory(&self, name: &Name) -> NameClass {
        if self.directories.is_match(name) { NameClass::Scratch } else { NameClass::Document }
    }

    /// The names of the documents beside which this name is a temporary one: `doc.txt.Ab12Cd` of `doc.txt`.
    ///
    /// The stem is what the first `*` of an ambiguous glob stands for. Empty where no glob tells (`sedAb12Cd`).
    pub fn stems(&self, name: &Name) -> Vec<Name> {
        let siblings = SIBLINGS.iter().flat_map(|(end, others)| siblings(name.as_bytes(), end, others));
        let stems = self.stems.iter().flat_map(|rule| rule.stems(name.as_bytes()));
        let mut found: Vec<Name> = Vec::new();
        for stem in siblings.chain(stems) {
            if !found.contains(&stem) {
                found.push(stem);
            }
        }
        found
    }
}

impl Default for ScratchRules {
    /// The rules for the programs that are known: [`SCRATCH`], [`AMBIGUOUS`] and [`DOCUMENTS`].
    fn default() -> Self {
        let globs =
            |known: &[KnownGlob]| known.iter().map(|(glob, _)| (*glob).to_owned()).collect::<Vec<_>>();
        Self::new(&globs(SCRATCH), &globs(AMBIGUOUS))
            .and_then(|rules| rules.with_documents(&globs(DOCUMENTS)))
            .expect("BUG: the default globs must compile")
    }
}

/// How the document's name is found in a temporary's: the first `*` of `BEFORE*AFTER` stands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StemRule {
    before: String,
    after: NameGlobs,
}

impl StemRule {
    /// The rule of an ambiguous glob; none where the glob's `*` can't be told from the rest.
    fn of(glob: &str) -> Option<Result<Self, GlobError>> {
        let (case, body) = match glob.strip_prefix("(?i)") {
            Some(body) => ("(?i)", body),
            None => ("", glob),
        };
        let (before, after) = body.strip_prefix('?').unwrap_or(body).split_once('*')?;
        let is_plain = !before.contains(['?', '[', '{', '\\']);
        let tells = is_plain && !after.is_empty() && !after.starts_with('*');
        tells.then(|| {
            Ok(Self { before: before.to_owned(), after: NameGlobs::new(&[format!("{case}{after}")])? })
        })
    }

    fn stems<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = Name> + 'a {
        let rest = name.strip_prefix(self.before.as_bytes()).unwrap_or_default();
        let ends =
            (1..rest.len()).filter(|&at| Name::new(&rest[at..]).is_ok_and(|end| self.after.is_match(&end)));
        ends.filter_map(|at| Name::new(&rest[..at]).ok())
    }
}

fn siblings(name: &[u8], end: &str, others: &[&str]) -> Vec<Name> {
    let Some(stem) = name.strip_suffix(end.as_bytes()).filter(|stem| !stem.is_empty()) else {
        return Vec::new();
    };
    others.iter().filter_map(|other| Name::new([stem, other.as_bytes()].concat()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(bytes: impl AsRef<[u8]>) -> Name {
        Name::new(bytes).unwrap()
    }

    fn assert_class(class: NameClass, names: &[&str]) {
        let rules = ScratchRules::default();
        for text in names {
            assert_eq!(rules.classify(&name(text)), class, "{text}");
        }
    }

    #[test]
    fn lock_files_are_scratch() {
        let unix = [".~lock.offer.odt#", ".#doc.txt", ".#-emacsAb12Cd", "~board.kicad_pcb.lck", ".part.lck"];
        let windows =
            ["~$offer.docx", "~$er.docx", "DB.LACCDB", "db.laccdb", "db.ldb", "plan.dwl", "PLAN.DWL2"];
        assert_class(NameClass::Scratch, &unix);
        assert_class(NameClass::Scratch, &windows);
    }

    #[test]
    fn temporaries_of_saves_are_scratch() {
        let unix = [
            "lu19999abcde.tmp",
            ".goutputstream-7XK3Z2",
            "scene.blend@",
            "part.FCStd.0e1c5fd2-8a37-4d41-9c0f-1f5a7d1f3b11",
            "offer.pages.sb-1a2b3c4d-Ab12Cd",
        ];
        let windows =
            ["~WRD0001.tmp", "~WRL0003.tmp", "~wrd0001.TMP", "~DF3A.tmp", "1A2B3C4D.tmp", "ppt4F2.tmp"];
        assert_class(NameClass::Scratch, &unix);
        assert_class(NameClass::Scratch, &windows);
    }

    #[test]
    fn what_systems_litter_is_scratch() {
        let unix = [".~tmp~", ".rsync-partial", "#131", ".fuse_hidden0000000300000001", ".nfs00a1", ".git"];
        let desktops =
            [".DS_Store", "._doc.txt", "._data.sqlite", ".TemporaryItems", ".Trash-1000", ".directory"];
        assert_class(NameClass::Scratch, &unix);
        assert_class(NameClass::Scratch, &desktops);
        assert_class(
            NameClass::Scratch,
            &["Thumbs.db", "THUMBS.DB", "desktop.ini", "a.crdownload", "fp-info-cache"],
        );
    }

    #[test]
    fn backups_are_scratch() {
        let text = ["doc.txt~", "doc.txt.~1~", "doc.txz~", "doc.txt.bak", "doc.txt.orig", "doc.txt.rej"];
        let others =
            ["a.blend1", "a.blend32", "b.FCStd1", "b.20260101.FCBak", "c.kicad_pcb-bak", "d.kdbx.old"];
        assert_class(NameClass::Scratch, &text);
        assert_class(NameClass::Scratch, &others);
    }

    #[test]
    fn journals_are_scratch() {
        let editors =
            ["#doc.txt#", ".doc.txt.swp", ".doc.txt.swo", ".doc.txt.swx", ".doc.txt.un~", ".a.kate-swp"];
        let data = ["a.db-journal", "a.db-wal", "a.db-shm", "a.db-mj8C1F0A2B", "_autosave-a.kicad_pcb"];
        assert_class(NameClass::Scratch, &editors);
        assert_class(NameClass::Scratch, &data);
        assert_class(NameClass::Scratch, &["~WRA0001.wbk", "offer.asd", "OFFER.ASD", "plan.sv$"]);
    }

    #[test]
    fn names_that_a_person_may_own_are_ambiguous() {
        let random =
            ["tmpAb12C_", "tmpab12cd_x", "sedAb12Cd", "XXAb12Cd", "ziAb12Cd", "stAb12Cd", "1A2B3C4D"];
        let named = [".doc.txt.Ab12Cd", "doc.txt.Ab12Cd", "doc.txt.oAb12Cd", "Makefile.x1Y2z3"];
        let suffixes = ["index.lock", "000005.ldb", "board.kicad_prl", "film.mkv.part", "x.tmp", "X.TMP"];
        assert_class(NameClass::Ambiguous, &random);
        assert_class(NameClass::Ambiguous, &named);
        assert_class(NameClass::Ambiguous, &suffixes);
        assert_class(NameClass::Ambiguous, &["4913", "5036", "5159"]);
    }

    #[test]
    fn a_persons_own_names_are_documents() {
        let words = [
            "x.template",
            "report.final",
            "my.backup",
            "sedation",
            "README",
            "a.b.c",
            "template",
            "strategies",
        ];
        let dots = [".gitignore", ".bashrc", ".vimrc", "...", "a..b", ".git-notes", ".swp"];
        let marks = ["a~b", "~notes.txt", "#1 offer.odt", "#todo", "a#b#c", "50%.ods", "4913.docx", "49130"];
        let extensions =
            ["wheel.SLDPRT", "rock.uasset", "cut.prproj", "data.sqlite", "data.db", "a.h5", "plan.dwg"];
        assert_class(NameClass::Document, &words);
        assert_class(NameClass::Document, &dots);
        assert_class(NameClass::Document, &marks);
        assert_class(NameClass::Document, &extensions);
        assert_class(
            NameClass::Document,
            &["backup", "lock", "part", "tmp", "journal", "wal", "bak", "my.locks"],
        );
    }

    #[test]
    fn names_of_any_bytes_are_classified() {
        let rules = ScratchRules::default();
        assert_eq!(rules.classify(&name(b"\xff\xfe\n~")), NameClass::Scratch);
        assert_eq!(rules.classify(&name(b".~lock.\xe9\n.odt#")), NameClass::Scratch);
        assert_eq!(rules.classify(&name(b"\xff\n.Ab12Cd")), NameClass::Ambiguous);
        assert_eq!(rules.classify(&name(b"\xff\xfe\n")), NameClass::Document);
        assert_eq!(rules.stems(&name(b"\xff\n.Ab12Cd")), [name(b"\xff\n")]);
    }

    #[test]
    fn only_programs_directories_are_scratch() {
        let rules = ScratchRules::default();
        for text in [".git", ".~tmp~", ".rsync-partial", ".TemporaryItems", ".Trash-1000"] {
            assert_eq!(rules.classify_directory(&name(text)), NameClass::Scratch, "{text}");
        }
        for text in ["travel-journal", "old.bak", "photos~", "students", "site.config", "._x", "1A2B3C4D"] {
            assert_eq!(rules.classify_directory(&name(text)), NameClass::Document, "{text}");
        }
    }

    #[test]
    fn stems_name_the_document_beside_a_temporary() {
        let rules = ScratchRules::default();
        let stems = |text: &str| rules.stems(&name(text)).iter().map(Name::to_string).collect::<Vec<_>>();
        assert_eq!(stems("doc.txt.Ab12Cd"), ["doc.txt"]);
        assert_eq!(stems(".doc.txt.Ab12Cd"), [".doc.txt", "doc.txt"]);
        assert_eq!(stems("doc.oAb12Cd"), ["doc"]);
        assert_eq!(stems("x.lock"), ["x"]);
        assert_eq!(stems("film.mkv.part"), ["film.mkv"]);
        assert_eq!(stems("doc.TMP"), ["doc"]);
        assert_eq!(stems("scene.blend@"), ["scene.blend"]);
        assert_eq!(stems("board.kicad_prl"), ["board.kicad_pcb", "board.kicad_pro", "board"]);
        for text in ["sedAb12Cd", "4913", "1A2B3C4D", "tmpAb12Cd", ".lock", "doc.txt", "..Ab12Cd"] {
            assert!(stems(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn stems_follow_the_globs_that_a_workspace_sets() {
        let globs = ["new-*.[0-9]", "*.{x,yy}", "[ab]*.z", "**", r"\**.q"].map(String::from);
        let rules = ScratchRules::new(&[], &globs).unwrap();
        assert_eq!(rules.stems(&name("new-doc.txt.1")), [name("doc.txt")]);
        assert_eq!(rules.stems(&name("doc.yy")), [name("doc")]);
        assert_eq!(rules.stems(&name("a1.z")), []);
    }

    proptest! {
        #[test]
        fn every_name_has_a_class_and_stems_are_shorter(bytes in proptest::collection::vec(any::<u8>(), 1..=255)) {
            let Ok(name) = Name::new(&bytes) else { return Ok(()) };
            let rules = RULES.get_or_init(ScratchRules::default);
            rules.classify(&name);
            prop_assert!(rules.stems(&name).iter().all(|stem| *stem != name));
        }

        #[test]
        fn a_random_suffix_leads_back_to_its_document(
            document in "[^/\0]{1,40}",
            suffix in "[A-Za-z0-9]{6}",
        ) {
            prop_assume!(![".", ".."].contains(&&*document));
            let rules = RULES.get_or_init(ScratchRules::default);
            let temporary = name(format!("{document}.{suffix}"));
            prop_assert!(rules.stems(&temporary).contains(&name(&document)));
        }
    }

    static RULES: std::sync::OnceLock<ScratchRules> = std::sync::OnceLock::new();
}
