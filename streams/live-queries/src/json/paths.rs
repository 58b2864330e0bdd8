//! JSON paths used by the queries of a topic, and their values' positions in a record.
//!
//! Each record is read once for all queries. Of duplicate keys, the last one counts.

use std::cmp::Ordering;
use std::str;

use crate::json::scanner::{Inside, Scanner};
use crate::json::strings::unescape;
use crate::limits::{JSON_DEPTH_MAX, PATHS_MAX};

/// A step of a path: into an object by key, or into an array by an index from 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Key(String),
    Index(u32),
}

/// Index of a path in [`Fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathId(usize);

/// Reference-counted set of requested paths.
#[derive(Debug, Default)]
pub struct Paths {
    paths: Vec<Wanted>,
    root: Node,
}

#[derive(Debug)]
struct Wanted {
    steps: Vec<Step>,
    user_count: usize,
}

#[derive(Debug, Default)]
struct Node {
    /// Index for the position of the value at this node.
    slot: Option<usize>,
    /// Children by key, ordered by [`by_length`].
    keys: Vec<(String, Node)>,
    /// Bit set of key lengths; the highest bit stands for all longer ones.
    key_lengths: u64,
    indices: Vec<(u32, Node)>,
}

/// Positions of requested values in a record's text. Reusable for the next record.
#[derive(Debug, Default)]
pub struct Fields {
    spans: Vec<Option<(usize, usize)>>,
}

impl Paths {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a reference to the path `steps`. Returns `None` if the set already has [`PATHS_MAX`]
    /// paths.
    pub fn take(&mut self, steps: &[Step]) -> Option<PathId> {
        if let Some(index) = self.paths.iter().position(|it| it.steps == steps) {
            self.paths[index].user_count += 1;
            if self.paths[index].user_count == 1 {
                self.rebuild();
            }
            return Some(PathId(index));
        }
        let wanted = Wanted { steps: steps.to_vec(), user_count: 1 };
        let free = self.paths.iter().position(|it| it.user_count == 0);
        let index = match free {
            Some(index) => {
                self.paths[index] = wanted;
                index
            }
            None if self.paths.len() < PATHS_MAX => {
                self.paths.push(wanted);
                self.paths.len() - 1
            }
            None => return None,
        };
        self.rebuild();
        Some(PathId(index))
    }

    /// Returns the steps of a path in use.
    pub(crate) fn steps(&self, path: PathId) -> &[Step] {
        &self.paths[path.0].steps
    }

    /// Releases one reference to `path`.
    pub fn release(&mut self, path: PathId) {
        let wanted = &mut self.paths[path.0];
        assert!(wanted.user_count > 0, "a path is released as often as it was taken");
        wanted.user_count -= 1;
        if wanted.user_count == 0 {
            self.rebuild();
        }
    }

    /// Returns whether no path is requested.
    pub fn is_empty(&self) -> bool {
        self.root.is_leaf() && self.root.slot.is_none()
    }

    /// Sets `fields` to the positions of the requested values, and returns the text of `value`.
    /// Returns `None` if it is not valid JSON: then all fields are absent.
    pub fn read<'a>(&self, value: &'a [u8], fields: &mut Fields) -> Option<&'a str> {
        fields.spans.clear();
        fields.spans.resize(self.paths.len(), None);
        if self.is_empty() {
            return None;
        }
        let text = str::from_utf8(value).ok()?;
        let end = self.root.read(Scanner::new(value), 0, &mut fields.spans);
        if end.is_some_and(|mut it| it.is_at_end()) {
            return Some(text);
        }
        fields.spans.fill(None);
        None
    }

    fn rebuild(&mut self) {
        self.root = Node::default();
        for (index, wanted) in self.paths.iter().enumerate() {
            if wanted.user_count > 0 {
                self.root.insert(&wanted.steps, index);
            }
        }
    }
}

impl Fields {
    /// Returns the JSON text at `path` in the last record read. `text` must be that record's.
    pub fn get<'a>(&self, path: PathId, text: &'a str) -> Option<&'a str> {
        let (start, end) = self.spans.get(path.0).copied().flatten()?;
        text.get(start..end)
    }
}

impl Node {
    fn is_leaf(&self) -> bool {
        self.keys.is_empty() && self.indices.is_empty()
    }

    fn insert(&mut self, steps: &[Step], slot: usize) {
        let Some((first, rest)) = steps.split_first() else {
            self.slot = Some(slot);
            return;
        };
        let child = match first {
            Step::Key(key) => {
                self.key_lengths |= length_bit(key.len());
                child_of(&mut self.keys, key, |it| by_length(it.as_bytes(), key.as_bytes()))
            }
            Step::Index(index) => child_of(&mut self.indices, index, |it| it.cmp(index)),
        };
        child.insert(rest, slot);
    }

    /// Reads the next value, which is inside `depth` containers, and returns the position after it.
    /// The depth of recursion is bounded by the lengths of paths.
    fn read<'a>(
        &self,
        mut scanner: Scanner<'a>,
        depth: usize,
        spans: &mut [Option<(usize, usize)>],
    ) -> Option<Scanner<'a>> {
        let first = scanner.peek()?;
        let start = scanner.at();
        let is_deep = depth >= JSON_DEPTH_MAX;
        match first {
            b'{' if !self.keys.is_empty() && !is_deep => {
                scanner = self.read_object(scanner, depth + 1, spans)?;
            }
            b'[' if !self.indices.is_empty() && !is_deep => {
                scanner = self.read_array(scanner, depth + 1, spans)?;
            }
            _ => scanner.skip_value(depth)?,
        }
        if let Some(slot) = self.slot {
            spans[slot] = Some((start, scanner.at()));
        }
        Some(scanner)
    }

    fn read_object<'a>(
        &self,
        mut scanner: Scanner<'a>,
        depth: usize,
        spans: &mut [Option<(usize, usize)>],
    ) -> Option<Scanner<'a>> {
        scanner.take(b'{');
        if scanner.take(b'}') {
            return Some(scanner);
        }
        loop {
            let key = scanner.key()?;
            match self.child(&key) {
                Some(child) => {
                    child.forget(spans);
                    scanner = child.read(scanner, depth, spans)?;
                }
                None => scanner.skip_value(depth)?,
            }
            if !scanner.take(b',') {
                return scanner.take(b'}').then_some(scanner);
            }
        }
    }

    fn read_array<'a>(
        &self,
        mut scanner: Scanner<'a>,
        depth: usize,
        spans: &mut [Option<(usize, usize)>],
    ) -> Option<Scanner<'a>> {
        scanner.take(b'[');
        if scanner.take(b']') {
            return Some(scanner);
        }
        for index in 0_u32.. {
            match self.indices.binary_search_by_key(&index, |(it, _)| *it) {
                Ok(at) => scanner = self.indices[at].1.read(scanner, depth, spans)?,
                Err(_) => scanner.skip_value(depth)?,
            }
            if !scanner.take(b',') {
                break;
            }
        }
        scanner.take(b']').then_some(scanner)
    }

    /// Discards the positions from an earlier value of a duplicate key.
    fn forget(&self, spans: &mut [Option<(usize, usize)>]) {
        if let Some(slot) = self.slot {
            spans[slot] = None;
        }
        self.keys.iter().for_each(|(_, child)| child.forget(spans));
        self.indices.iter().for_each(|(_, child)| child.forget(spans));
    }

    /// Returns the child for a key as written between its quotes.
    fn child(&self, key: &Inside<'_>) -> Option<&Node> {
        let find = |key: &[u8]| {
            if self.key_lengths & length_bit(key.len()) == 0 {
                return None;
            }
            let at = self.keys.binary_search_by(|(it, _)| by_length(it.as_bytes(), key));
            at.ok().map(|at| &self.keys[at].1)
        };
        match key.has_escapes {
            false => find(key.bytes),
            true => find(unescape(str::from_utf8(key.bytes).ok()?).ok()?.as_bytes()),
        }
    }
}

fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

/// Orders keys by length first, so that most comparisons need not read their bytes.
fn by_length(left: &[u8], right: &[u8]) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

/// Returns the child at `step`, created if necessary. Children are sorted. `order` compares a
/// child's step with `step`.
fn child_of<'a, K: Clone>(
    children: &'a mut Vec<(K, Node)>,
    step: &K,
    order: impl Fn(&K) -> Ordering,
) -> &'a mut Node {
    let at = match children.binary_search_by(|(it, _)| order(it)) {
        Ok(at) => at,
        Err(at) => {
            children.insert(at, (step.clone(), Node::default()));
            at
        }
    };
    &mut children[at].1
}
