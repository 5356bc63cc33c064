//! The table of nodes that the kernel knows, and the working nodes that names were switched to.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::node::Node;
use crate::model::{Ino, Seq};

/// Nodes by inode number. Locking: one mutex, held for a look only; never while a node's is held.
#[derive(Debug, Default)]
pub(super) struct NodeTable {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    nodes: HashMap<Ino, Arc<Node>>,
    /// Artifacts whose name was switched to a working node that the catalog has no draft for.
    switched: HashMap<Seq, Ino>,
}

impl NodeTable {
    pub fn get(&self, ino: Ino) -> Option<Arc<Node>> {
        self.tables.lock().nodes.get(&ino).cloned()
    }

    /// The node of an inode number; made if there is none.
    pub fn get_or_insert(&self, ino: Ino, make: impl FnOnce() -> Node) -> Arc<Node> {
        Arc::clone(self.tables.lock().nodes.entry(ino).or_insert_with(|| Arc::new(make())))
    }

    /// Forgets a node that `is_unused` says nobody knows. A working node stays while a name is switched to it: the
    /// opener that was sent to look the name up may have let go of it in between.
    pub fn remove_if(&self, ino: Ino, is_unused: impl FnOnce(&Arc<Node>) -> bool) {
        let Some(node) = self.get(ino).filter(is_unused) else { return };
        let artifact = node.lock().artifact;
        let mut tables = self.tables.lock();
        let switched = tables.switched.get(&artifact) == Some(&ino);
        // Two references are the table's and ours: a third is somebody who found it meanwhile. Who did and is done has told
        // the kernel of it.
        if !switched && Arc::strong_count(&node) <= 2 && !node.is_known() {
            tables.nodes.remove(&ino);
        }
    }

    /// The working node that an artifact's name was switched to.
    pub fn switched(&self, artifact: Seq) -> Option<Arc<Node>> {
        let tables = self.tables.lock();
        tables.switched.get(&artifact).and_then(|ino| tables.nodes.get(ino)).cloned()
    }

    /// Switches an artifact's name from a node to a working one, unless it is switched already; returns the node it is.
    pub fn switch(&self, artifact: Seq, from: Ino, working: Node) -> Arc<Node> {
        let mut tables = self.tables.lock();
        let present = tables.switched.get(&artifact).and_then(|ino| tables.nodes.get(ino));
        if let Some(node) = present.filter(|node| node.ino != from) {
            return Arc::clone(node);
        }
        let node = Arc::new(working);
        tables.switched.insert(artifact, node.ino);
        tables.nodes.insert(node.ino, Arc::clone(&node));
        node
    }

    /// Notes again that the name is at a working node that had been given up.
    pub fn switch_to(&self, artifact: Seq, ino: Ino) {
        self.tables.lock().switched.insert(artifact, ino);
    }

    /// Gives a name back to what the catalog says of it; tells whether it was switched.
    pub fn unswitch(&self, artifact: Seq) -> bool {
        self.tables.lock().switched.remove(&artifact).is_some()
    }

    /// Gives a name back if it is switched to this node; tells whether it was. An older node of the artifact has no say.
    pub fn unswitch_from(&self, artifact: Seq, ino: Ino) -> bool {
        let mut tables = self.tables.lock();
        let switched = tables.switched.get(&artifact) == Some(&ino);
        if switched {
            tables.switched.remove(&artifact);
        }
        switched
    }

    /// Every node; for the few things that must look at all of them.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.tables.lock().nodes.values().cloned().collect()
    }

    /// The nodes of some artifacts, current or not.
    pub fn of_artifacts(&self, artifacts: &[Seq]) -> Vec<Arc<Node>> {
        self.all().into_iter().filter(|node| artifacts.contains(&node.lock().artifact)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ArtifactId, Attrs, Content, Entry, Kind, Layer, Name, Scratch, Timestamp};

    fn node(ino: Ino) -> Node {
        let time = Timestamp(1);
        let attrs = Attrs { mode: 0o644, uid: 0, gid: 0, atime: time, mtime: time, ctime: time };
        let entry = Entry {
            artifact: Seq(7),
            id: ArtifactId(uuid::Uuid::nil()),
            parent: Seq::ROOT,
            name: Name::new("doc").unwrap(),
            kind: Kind::File,
            ino,
            attrs,
            size: 0,
            content: Content::None,
            layer: Layer::Head,
            scratch: Scratch::No,
            head: None,
            head_ino: None,
        };
        Node::of(&entry, attrs)
    }

    #[test]
    fn an_older_node_does_not_give_the_name_back() {
        // Aim: what becomes of a former version's node must not take the working node from an opener who was sent to it.
        let table = NodeTable::default();
        let working = table.switch(Seq(7), Ino(5), node(Ino(6)));
        assert!(!table.unswitch_from(Seq(7), Ino(4)));
        assert_eq!(table.switched(Seq(7)).map(|found| found.ino), Some(working.ino));
        assert!(table.unswitch_from(Seq(7), Ino(6)) && table.switched(Seq(7)).is_none());
    }

    #[test]
    fn a_node_that_was_looked_up_while_it_was_to_be_forgotten_stays() {
        // Aim: a look-up that begins after the check and ends before the removal must not leave the kernel with a number
        // that means nothing: the next open would be ESTALE twice, which applications see.
        let table = NodeTable::default();
        table.get_or_insert(Ino(5), || node(Ino(5)));
        table.remove_if(Ino(5), |found| {
            let seen = table.get_or_insert(Ino(5), || node(Ino(5)));
            seen.count_lookup();
            assert_eq!(found.ino, seen.ino);
            true
        });
        assert!(table.get(Ino(5)).is_some());
        table.get(Ino(5)).unwrap().forget_lookups(1);
        table.remove_if(Ino(5), |_| true);
        assert!(table.get(Ino(5)).is_none());
    }
}
