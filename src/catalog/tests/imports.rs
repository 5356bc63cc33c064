use super::support::*;
use crate::catalog::{CatalogError, ImportItem, Importing};
use crate::clock::Clock;
use crate::model::{ChangeNumber, Content, Kind, Timestamp};

fn item(at: &str, kind: Kind, content: Content) -> ImportItem {
    ImportItem { path: path(at), kind, mode: 0o640, mtime: Timestamp(7), content, size: 3 }
}

fn import(world: &World, items: &[ImportItem]) -> crate::catalog::Result<Option<ChangeNumber>> {
    let author = "imp@home".parse().unwrap();
    let importing = Importing { author: &author, message: "imported", now: world.clock.now() };
    world.catalog.import(&importing, items, &world.ids)
}

#[test]
fn an_import_is_one_change_of_files_links_and_directories() {
    let world = world();
    let items = [
        item("d", Kind::Directory, Content::None),
        item("d/a", Kind::File, blob("a1")),
        item("d/l", Kind::Symlink, Content::Target(b"../x".to_vec())),
        item("deep/er/b", Kind::File, blob("b1")),
    ];
    assert_eq!(import(&world, &items).unwrap(), Some(ChangeNumber(1)));
    assert_eq!(world.tree(), ["d", "d/a", "d/l", "deep", "deep/er", "deep/er/b"]);
    let file = world.head("d/a").unwrap();
    assert_eq!((file.attrs.mode, file.attrs.mtime), (0o640, Timestamp(7)));
    assert_eq!(world.head("d").unwrap().attrs.mtime, Timestamp(7));
    assert_eq!(import(&world, &items).unwrap(), None);
    assert_eq!(world.catalog.head_change().unwrap(), ChangeNumber(1));
}

#[test]
fn importing_again_makes_versions_of_what_differs() {
    let world = world();
    import(&world, &[item("a", Kind::File, blob("a1")), item("b", Kind::File, blob("b1"))]).unwrap();
    let id = world.head("a").unwrap().id;
    import(&world, &[item("a", Kind::File, blob("a2")), item("b", Kind::File, blob("b1"))]).unwrap();
    assert_eq!((world.head_number("a"), world.head_number("b")), (2, 1));
    assert_eq!(world.head("a").unwrap().id, id);
    let items = world.catalog.changes_since(ChangeNumber(1)).unwrap();
    assert_eq!(items.len(), 1);
    assert!(items[0].ino_before.is_some() && items[0].before == items[0].after);
}

#[test]
fn an_import_respects_leases_and_kinds() {
    let world = world();
    let ada = world.checkout("ada@home");
    import(&world, &[item("a", Kind::File, blob("a1")), item("d/x", Kind::File, blob("x1"))]).unwrap();
    ada.write("a", "ada");
    ada.write_new("new", "n");
    assert!(is_held(import(&world, &[item("a", Kind::File, blob("a2"))])));
    assert!(is_held(import(&world, &[item("new", Kind::File, blob("a2"))])));
    let dir_over_file = import(&world, &[item("a/b", Kind::File, blob("b"))]);
    assert!(matches!(dir_over_file, Err(CatalogError::NotDirectory)));
    let file_over_dir = import(&world, &[item("d", Kind::File, blob("b"))]);
    assert!(matches!(file_over_dir, Err(CatalogError::IsDirectory)));
    assert_eq!(world.catalog.head_change().unwrap(), ChangeNumber(1));
}
